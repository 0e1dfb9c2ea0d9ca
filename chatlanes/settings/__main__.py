"""`chatlanes settings` prints the settings as Markdown, or as a `.env` file."""

import argparse
import sys
from collections.abc import Sequence

from chatlanes.settings.page import page
from chatlanes.settings.table import env_example, markdown

PAGES = {"table": markdown, "page": page, "env": env_example}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="chatlanes settings", description="Prints every setting.")
    parser.add_argument(
        "page",
        nargs="?",
        default="table",
        choices=PAGES,
        help="`table` of all settings (default), `page` docs/settings.md, `env` a commented .env file",
    )
    sys.stdout.write(PAGES[parser.parse_args(arguments).page]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
