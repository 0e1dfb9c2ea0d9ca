"""Flower as our app wants it: behind a password, with the kind and the chat of each update in its list of tasks.

Promises that `chatlanes flower` as it is lets in only who has seen its start: it shows chats and tracebacks,
can end workers, and listens on every address. Told otherwise by --basic-auth, --auth, their FLOWER_… variables, or
FLOWER_UNAUTHENTICATED_API=true, which is Flower's own word for "no password at all". Its other options are left alone.
With FLOWER_HOSTS it answers only under these names, so that a foreign name that resolves to this machine (DNS
rebinding) reaches nothing.
"""

import logging
import os
import secrets
import sys
from typing import Any

import click

from chatlanes.logs.process import lines_of, say, warn_of_settings
from chatlanes.settings import Settings
from chatlanes.tasks.flower_backlog import show_backlog

USER = "admin"
#: Flower 2.2's own choice for its list of tasks (flower.options).
USUAL_COLUMNS = "name,uuid,state,received,runtime,worker"
OPEN = "FLOWER_UNAUTHENTICATED_API"
#: Names without ports, separated by commas; none: any.
HOSTS = "FLOWER_HOSTS"


def starts_here() -> bool:
    """Whether this process is `celery … flower`."""
    command = click.get_current_context(silent=True)
    return command is not None and command.info_name == "flower"


def set_up(settings: Settings) -> None:
    """After Flower has read its options, and before it opens its port."""
    from tornado.options import options

    if settings.log_format == "json":
        lines = lines_of(settings)
        for handler in logging.getLogger().handlers:
            handler.setFormatter(lines)
    warn_of_settings(settings)
    check_port(options)
    show_arguments(options)
    show_backlog(settings)
    ask_for_a_password(options, settings)
    if os.environ.get(HOSTS):
        answer_only_under(frozenset(os.environ[HOSTS].split(",")))


def check_port(options: Any) -> None:
    """Flower itself would end with a traceback."""
    from tornado.netutil import bind_sockets

    if options.unix_socket:
        return
    try:
        for opened in bind_sockets(options.port, options.address or None):
            opened.close()
    except OSError as error:
        place = f"{options.address or '*'}:{options.port}"
        sys.exit(f"cannot listen on {place} ({error.strerror}): stop what listens there, or give --port and --address")


def show_arguments(options: Any) -> None:
    """They say kind, chat and update, never the text; the name is the same for all."""
    if options.tasks_columns == USUAL_COLUMNS:
        options.tasks_columns = "uuid,args,state,received,runtime,worker"


def ask_for_a_password(options: Any, settings: Settings) -> None:
    if options.basic_auth or options.auth or os.environ.get(OPEN, "").lower() in ("1", "true", "yes", "on"):
        return
    password = secrets.token_urlsafe(9)
    options.basic_auth = [f"{USER}:{password}"]
    say(
        settings,
        f"Flower asks for user {USER} and password {password}, until it is started again. "
        f"Choose your own: FLOWER_BASIC_AUTH=name:password; none: {OPEN}=true.",
    )


def answer_only_under(names: frozenset[str]) -> None:
    """All other Host headers get 403, whatever they ask for."""
    from flower.app import Flower
    from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
    from tornado.web import RequestHandler

    class ForeignHost(RequestHandler):
        def prepare(self) -> None:
            self.set_status(403)
            self.finish(f"Flower answers only under {', '.join(sorted(names))}")

    find_handler = Flower.find_handler

    def checked(self: Flower, request: HTTPServerRequest, **kwargs: Any) -> HTTPMessageDelegate:
        if request.host_name in names:
            return find_handler(self, request, **kwargs)
        return self.get_handler_delegate(request, ForeignHost)

    Flower.find_handler = checked
