"""Imports a bot in a process of its own and reports why it fails.

The calls that its module makes go to BOT_API_URL, with whatever token is set.
"""

import os
import sys

from chatlanes.bot.loader import load_bot
from chatlanes.logs.errors import traceback_of
from chatlanes.logs.redaction import Secrets
from chatlanes.settings.imports import ImportPathError
from chatlanes.settings.reading import variables
from chatlanes.telegram.client import BotApi


def main() -> None:
    try:
        arguments = variables("BOT_ARGS").get("BOT_ARGS", "")
        load_bot(sys.argv[1], api=BotApi(os.environ["BOT_API_URL"], ""), arguments=arguments)
    except ImportPathError as error:
        if error.__cause__ is not None:
            print(traceback_of(error.__cause__, Secrets()), file=sys.stderr)  # noqa: T201 - its whole purpose
        sys.exit(str(error))


if __name__ == "__main__":
    main()
