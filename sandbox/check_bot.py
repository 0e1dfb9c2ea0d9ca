"""Whether a bot can be imported; says what to do when it cannot."""

import sys

from tasks.bot.loader import BotImportError, load_bot


def main() -> None:
    try:
        load_bot(sys.argv[1])
    except BotImportError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
