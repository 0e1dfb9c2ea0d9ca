"""python -m sandbox.simulator: a Bot API on this machine."""

import argparse
import sys

from sandbox.simulator.bot import SimulatedBot
from sandbox.simulator.serve import PortInUseError, serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sandbox.simulator", description=__doc__)
    parser.add_argument("--port", type=int, default=8081, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--token", default="1:TEST", help="the one token it knows (default: %(default)s)")
    parser.add_argument("--first-update-id", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument(
        "--no-quirks",
        action="store_true",
        help="do not hold back polls that repeat their offset within 3 s, nor conflicts that follow each other",
    )
    options = parser.parse_args()
    try:
        bot = SimulatedBot(options.token, quirks=not options.no_quirks, first_update_id=options.first_update_id)
        serve(bot, options.port)
    except PortInUseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
