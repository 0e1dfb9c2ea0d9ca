"""The simulator with its page, as one application."""

from __future__ import annotations

import sys
from pathlib import Path

from chatlanes.sandbox.page.bot import PageBot
from chatlanes.sandbox.page.kept import Kept, KeptElsewhereError
from chatlanes.sandbox.page.page import Page
from chatlanes.sandbox.page.routes import ROUTES
from chatlanes.sandbox.simulator.serve import application, serve
from chatlanes.settings import SettingsError, load


def serve_page(token: str, file: Path, port: int, *, first_update_id: int, quirks: bool) -> None:
    """Until SIGTERM or SIGINT. Its chats are kept in `file`; one that another page has ends the process with a
    sentence, as do wrong settings. Raises PortInUseError.
    """
    try:
        settings, kept = load(), Kept(file)
    except (SettingsError, KeptElsewhereError) as error:
        sys.exit(str(error))
    bot = PageBot(token, kept, first_update_id=first_update_id, order_by=settings.order_by, quirks=quirks)
    page = Page(bot, settings)
    app = application(bot, ROUTES)
    app.state.page = page
    serve(bot, port, app, started=page.start)
