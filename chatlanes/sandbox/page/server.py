"""The simulator with its page, as one application."""

from __future__ import annotations

import sys
from pathlib import Path

from chatlanes.sandbox.page.bot import PageBot
from chatlanes.sandbox.page.page import Page
from chatlanes.sandbox.page.routes import ROUTES
from chatlanes.sandbox.page.storage import PageStorage, StorageInUseError
from chatlanes.sandbox.simulator.server import application, serve
from chatlanes.settings import SettingsError, load


def serve_page(token: str, file: Path, port: int, *, first_update_id: int, quirks: bool) -> None:
    """Until SIGTERM or SIGINT. Its chats are kept in `file`; one that another page has ends the process with a
    sentence, as do wrong settings. Raises PortInUseError.
    """
    try:
        settings, storage = load(), PageStorage(file)
    except (SettingsError, StorageInUseError) as error:
        sys.exit(str(error))
    bot = PageBot(token, storage, first_update_id=first_update_id, order_by=settings.order_by, quirks=quirks)
    page = Page(bot, settings)
    app = application(bot, ROUTES)
    app.state.page = page
    serve(bot, port, app, started=page.start)
