"""The simulator with its page, as one application."""

from __future__ import annotations

import sys
from pathlib import Path

from chatlanes.sandbox.page.bot import PageBot
from chatlanes.sandbox.page.page import Page
from chatlanes.sandbox.page.routes import ROUTES
from chatlanes.sandbox.page.storage import PageStorage, StorageInUseError
from chatlanes.sandbox.page.tracking.order_audit import OrderAudit
from chatlanes.sandbox.simulator.server import application, serve
from chatlanes.settings import SettingsError, load
from chatlanes.settings.checks import NO_COLLECT


def serve_page(token: str, file: Path, port: int, *, first_update_id: int, quirks: bool) -> None:
    """Until SIGTERM or SIGINT. Its chats are kept in `file`; one that another page has ends the process with a
    sentence, as do wrong settings. Raises PortInUseError.
    """
    try:
        settings, storage = load(), PageStorage(file)
    except (SettingsError, StorageInUseError) as error:
        sys.exit(str(error))
    audit = OrderAudit(collects=settings.collect != NO_COLLECT, interrupts=settings.interrupt == "on")
    order_by = settings.order_by
    bot = PageBot(token, storage, first_update_id=first_update_id, order_by=order_by, audit=audit, quirks=quirks)
    page = Page(bot, settings)
    app = application(bot, ROUTES)
    app.state.page = page
    serve(bot, port, app, started=page.start)
