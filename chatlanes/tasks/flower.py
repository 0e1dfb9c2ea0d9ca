"""Flower's options for this app: a password, kind, chat and attempt of each update in the task list, and the backlog.

By default `chatlanes flower` requires a random password that it prints at start, because Flower shows chats and
tracebacks, can stop workers, and listens on every address; --basic-auth, --auth, their FLOWER_… variables and
FLOWER_UNAUTHENTICATED_API=true (no password) replace this default. The login is required for every path except static
files. With FLOWER_HOSTS it answers only requests for these host names, which prevents DNS rebinding.

Flower shows the length of a queue's list, which holds only messages that are ready: one for each lane. The rows added
here count the messages that wait behind them, those that workers have, and retries. The queues of a group are one row,
which opens. Flower's API for queue lengths is unchanged.
"""

import asyncio
import logging
import os
import re
import secrets
import sys
from collections.abc import Iterable
from html import escape
from typing import Any

import click
from redis import Redis

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Store, keys
from chatlanes.logs.process import lines_of, say, warn_of_settings
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to

USER = "admin"
#: The description of an update, a timer, a recipient of a broadcast (chatlanes/updates/intake.py): its kind, and chat.
OF_UPDATE = re.compile(r"\((\w+)[^,)]*(?:, chat (-?\d+))?")
#: Flower 2.2's default columns of the task list (flower.options).
DEFAULT_COLUMNS = "name,uuid,state,received,runtime,worker"
NO_PASSWORD = "FLOWER_UNAUTHENTICATED_API"  # noqa: S105
#: Host names without ports, separated by commas. Unset: any name.
HOSTS = "FLOWER_HOSTS"
ANSWER_WITHIN_S = 2.0

Row = dict[str, Any]


def starts_here() -> bool:
    """True if this process runs `celery … flower`."""
    command = click.get_current_context(silent=True)
    return command is not None and command.info_name == "flower"


def set_up(settings: Settings) -> None:
    """Call after Flower has read its options and before it opens its port."""
    from tornado.options import options

    if settings.log_format == "json":
        lines = lines_of(settings)
        for handler in logging.getLogger().handlers:
            handler.setFormatter(lines)
    warn_of_settings(settings)
    check_port(options)
    show_updates(options)
    show_backlog(settings)
    require_password(options, settings)
    protect_monitoring()
    if os.environ.get(HOSTS):
        restrict_hosts(frozenset(os.environ[HOSTS].split(",")))


def check_port(options: Any) -> None:
    """Exit with one sentence if the port is taken; Flower itself would print a traceback."""
    from tornado.netutil import bind_sockets

    if options.unix_socket:
        return
    try:
        for opened in bind_sockets(options.port, options.address or None):
            opened.close()
    except OSError as error:
        place = f"{options.address or '*'}:{options.port}"
        sys.exit(
            f"cannot listen on {place} ({error.strerror}): stop the process that uses it, or set --port and --address"
        )


def show_updates(options: Any) -> None:
    """Show kind, chat and attempt instead of the name, which is the same for all tasks. The id has that of the update;
    its text is never shown.
    """
    from flower.views import tasks

    as_dict = tasks.as_dict

    def with_columns(task: Any) -> dict[str, Any]:
        shown = OF_UPDATE.match(str(task.args or ""))
        kind, chat = shown.groups() if shown else ("", "")
        return {**as_dict(task), "kind": kind, "chat": chat or "", "attempt": getattr(task, "attempt", "")}

    tasks.as_dict = with_columns
    tasks.TASK_COLUMNS |= {"kind": "Kind", "chat": "Chat", "attempt": "Attempt"}
    if options.tasks_columns == DEFAULT_COLUMNS:
        options.tasks_columns = "uuid,kind,chat,attempt,state,received,runtime,worker"


def require_password(options: Any, settings: Settings) -> None:
    if options.basic_auth or options.auth or os.environ.get(NO_PASSWORD, "").lower() in ("1", "true", "yes", "on"):
        return
    password = secrets.token_urlsafe(9)
    options.basic_auth = [f"{USER}:{password}"]
    say(
        settings,
        f"Flower's login is user {USER}, password {password}, until Flower restarts. "
        f"To choose your own, set FLOWER_BASIC_AUTH=name:password; for no password, {NO_PASSWORD}=true.",
    )


def protect_monitoring() -> None:
    """Require the login for /metrics and /healthcheck too, which Flower answers without one."""
    from flower.views.monitor import Healthcheck, Metrics
    from tornado.web import authenticated

    for view in (Metrics, Healthcheck):
        view.get = authenticated(view.get)


def restrict_hosts(names: frozenset[str]) -> None:
    """Requests with any other Host header get 403."""
    from flower.app import Flower
    from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
    from tornado.web import RequestHandler

    class ForeignHost(RequestHandler):
        def prepare(self) -> None:
            self.set_status(403)
            self.finish(f"Flower answers only requests for the host {', '.join(sorted(names))}")

    find_handler = Flower.find_handler

    def checked(self: Flower, request: HTTPServerRequest, **kwargs: Any) -> HTTPMessageDelegate:
        if request.host_name in names:
            return find_handler(self, request, **kwargs)
        return self.get_handler_delegate(request, ForeignHost)

    Flower.find_handler = checked


def show_backlog(settings: Settings) -> None:
    """For the broker page of this process."""
    from flower.views.broker import BrokerView

    get_broker = BrokerView.get_broker

    def with_backlog(self: Any) -> "BrokerWithBacklog":
        return BrokerWithBacklog(get_broker(self), settings)

    BrokerView.get_broker = with_backlog
    render_string = BrokerView.render_string

    def with_queues(self: Any, name: str, **values: Any) -> bytes:
        page: bytes = render_string(self, name, **values)
        for row in values.get("queues", ()):
            if row.get("queues"):
                page = page.replace(f"<td>{escape(row['name'])}</td>".encode(), f"<td>{opening(row)}</td>".encode(), 1)
        return page

    BrokerView.render_string = with_queues


def opening(row: Row) -> str:
    """HTML: the name of the row, which opens a list of its queues."""
    items = "".join(f"<li>{escape(each['name'])}: {each['messages_ready']} ready</li>" for each in row["queues"])
    return f"<details><summary>{escape(row['name'])}</summary><ul>{items}</ul></details>"


class BrokerWithBacklog:
    """Flower's own broker, with more rows."""

    def __init__(self, broker: Any, settings: Settings) -> None:
        self._broker, self._settings = broker, settings

    async def queues(self, names: Iterable[str]) -> list[Row]:
        """Raises what the broker raises, and RedisError."""
        queues = await self._broker.queues(names)
        return await asyncio.to_thread(self._read, queues)

    def _read(self, queues: list[Row]) -> list[Row]:
        groups = dict.fromkeys(each.queue_group for each in (*self._settings.served, self._settings))
        with connect_to(self._settings, ANSWER_WITHIN_S) as client:
            return rows(client, list(groups), queues)


def rows(client: Redis, groups: list[str], queues: list[Row]) -> list[Row]:
    """The rows of the groups, each with its queues, and the other `queues`. The length of a lane queue is its number of
    ready messages.
    """
    others = [queue for queue in queues if keys.group_of(queue["name"]) not in groups]
    store, lanes = Store(client), []
    for group in groups:
        pending = store.pending(group)
        ours = [queue for queue in queues if keys.group_of(queue["name"]) == group]
        if pending or ours:
            ready = [{"name": queue["name"], "messages_ready": queue["messages"]} for queue in ours]
            name = f"{group}.*, all lanes (details: chatlanes lanes status)"
            counts = {"messages": pending, "messages_ready": sum(each["messages_ready"] for each in ready)}
            lanes.append({"name": name, **counts, "queues": ready})
    return [
        *lanes,
        {"name": "handed out to workers", "messages_unacknowledged": int(client.zcard(keys.LEASES))},
        {"name": "waiting for a retry", "messages": inspection.delayed(client)},
        {"name": "buried", "messages": int(client.zcard(keys.DEAD))},
        *others,
    ]
