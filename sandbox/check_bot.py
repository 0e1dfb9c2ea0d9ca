"""Whether a bot can be imported; says what to do when it cannot."""

import sys
import traceback

from tasks.bot.loader import load_bot
from tasks.imports import BotImportError


def main() -> None:
    try:
        load_bot(sys.argv[1])
    except BotImportError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        sys.exit(str(error))


if __name__ == "__main__":
    main()
