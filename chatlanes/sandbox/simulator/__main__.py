"""`python -m chatlanes.sandbox.simulator`: a Bot API on this machine."""

import argparse
import sys
from pathlib import Path

from chatlanes.sandbox.simulator.bot import SimulatedBot
from chatlanes.sandbox.simulator.server import PortInUseError, serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chatlanes.sandbox.simulator", description=__doc__)
    parser.add_argument("--port", type=int, default=8081, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--token", default="1:TEST", help="the only token it accepts (default: %(default)s)")
    parser.add_argument("--first-update-id", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument(
        "--no-quirks",
        action="store_true",
        help="answer at once: do not delay polls that repeat their offset within 3 s, nor conflicts in a row",
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="serve the page too, and store its chats in FILE")
    options = parser.parse_args()
    try:
        run(options)
    except PortInUseError as error:
        sys.exit(str(error))


def run(options: argparse.Namespace) -> None:
    """Raises PortInUseError."""
    quirks = not options.no_quirks
    if options.page is None:
        bot = SimulatedBot(options.token, quirks=quirks, first_update_id=options.first_update_id)
        serve(bot, options.port)
        return
    from chatlanes.sandbox.page.server import serve_page  # without a page nothing of it is loaded

    serve_page(options.token, options.page, options.port, first_update_id=options.first_update_id, quirks=quirks)


if __name__ == "__main__":
    main()
