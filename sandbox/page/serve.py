"""The simulator with its page, as one application."""

from __future__ import annotations

import sys
from pathlib import Path

from sandbox.page.bot import PageBot
from sandbox.page.guard import Guard
from sandbox.page.kept import Kept, KeptElsewhereError
from sandbox.page.routes import ROUTES
from sandbox.simulator.serve import application, serve


def serve_page(token: str, file: Path, first_update_id: int, port: int) -> None:
    """Until SIGTERM or SIGINT. Its chats are kept in `file`; one that another page has ends the process with a
    sentence. Raises PortInUseError.
    """
    try:
        kept = Kept(file)
    except KeptElsewhereError as error:
        sys.exit(str(error))
    bot = PageBot(token, kept, first_update_id)
    serve(bot, port, Guard(application(bot, ROUTES)))
