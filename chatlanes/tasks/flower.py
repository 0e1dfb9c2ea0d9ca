"""Flower's options for this app: a password, and the kind, chat and attempt of each update in the task list.

By default `chatlanes flower` requires a random password that it prints at start, because Flower shows chats and
tracebacks, can stop workers, and listens on every address; --basic-auth, --auth, their FLOWER_… variables and
FLOWER_UNAUTHENTICATED_API=true (no password) replace this default. The login is required for every path except static
files. With FLOWER_HOSTS it answers only requests for these host names, which prevents DNS rebinding.
"""

import logging
import os
import re
import secrets
import sys
from typing import Any

import click

from chatlanes.logs.process import lines_of, say, warn_of_settings
from chatlanes.settings import Settings
from chatlanes.tasks.flower_backlog import show_backlog

USER = "admin"
#: The description of an update, a timer, a recipient of a broadcast (chatlanes/updates/intake.py): its kind, and chat.
OF_UPDATE = re.compile(r"\((\w+)[^,)]*(?:, chat (-?\d+))?")
#: Flower 2.2's default columns of the task list (flower.options).
DEFAULT_COLUMNS = "name,uuid,state,received,runtime,worker"
NO_PASSWORD = "FLOWER_UNAUTHENTICATED_API"  # noqa: S105
#: Host names without ports, separated by commas. Unset: any name.
HOSTS = "FLOWER_HOSTS"


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
