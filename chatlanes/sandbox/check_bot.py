"""Imports a bot in a process of its own and reports why it fails.

The calls that its module makes go to BOT_API_URL, with whatever token is set.
"""

import os
import sys
import traceback
from types import TracebackType

from chatlanes.bot.loader import load_bot
from chatlanes.settings.imports import BotImportError
from chatlanes.telegram.client import BotApi


def main() -> None:
    try:
        load_bot(sys.argv[1], api=BotApi(os.environ["BOT_API_URL"], ""))
    except BotImportError as error:
        if error.__cause__ is not None:
            cause = error.__cause__
            traceback.print_exception(type(cause), cause, from_the_bot(cause.__traceback__))
        sys.exit(str(error))


def from_the_bot(trace: TracebackType | None) -> TracebackType | None:
    """Without the steps that lead into the bot's module: they are Python's and ours, and never at fault."""
    first = trace
    while first and (first.tb_frame.f_code.co_filename.startswith("<frozen") or _is_ours(first)):
        first = first.tb_next
    return first


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_globals.get("__name__") in ("chatlanes.settings.imports", "importlib")


if __name__ == "__main__":
    main()
