"""Prints the progress of the simulated bot every few seconds, if it has changed.

The figures are those of the simulator and of Redis, not of the poller or the workers.
"""

import argparse
import time
from collections.abc import Mapping
from typing import Any

import requests
from redis.exceptions import RedisError

from chatlanes.sandbox.simulator import Simulator
from chatlanes.settings import load
from chatlanes.updates.intake import Intake

EVERY_S = 3.0
#: Prefixes of the methods that send a message.
SENDS = ("send", "copyMessage", "forwardMessage")


class ProgressReport:
    """`left_over` is the backlog that an earlier run left in the lanes."""

    def __init__(self, simulator: Simulator, intake: Intake, left_over: int) -> None:
        self._simulator = simulator
        self._intake = intake
        self._left_over = left_over

    def arguments(self) -> tuple[str, ...]:
        """The same report, as arguments of this module."""
        return (self._simulator.url, "--left-over", str(self._left_over))

    def line(self) -> str:
        try:
            return line(self._simulator.stats(), self._intake.pending(), self._left_over)
        except (RedisError, requests.RequestException) as error:
            return f"no figures: {type(error).__name__}"


def line(stats: dict[str, Any], backlog: int, left_over: int = 0) -> str:
    """`backlog` is the number of updates in the lanes; those waiting at the simulator are in `stats`."""
    received = stats["confirmed"]
    # Between an append and its confirmation an update is counted in the lanes and not as received yet.
    handled = max(0, left_over + received - backlog)
    answers = stats["answers"]
    return " · ".join(
        [
            f"received {received:,}",
            f"handled {handled:,}",
            f"sent {_sent(stats['calls']):,}",
            *(_numbered(answers) if answers["total"] else ()),
            f"waiting {stats['pending'] + backlog:,}",
        ]
    )


def _sent(calls: Mapping[str, int]) -> int:
    """Messages of any kind."""
    return sum(count for name, count in calls.items() if name.startswith(SENDS) and name != "sendChatAction")


def _numbered(answers: Mapping[str, Any]) -> tuple[str, str]:
    """Answered updates; a simulator without a page counts only those whose number is in the answer."""
    return (
        f"{answers['total']:,} answers in {answers['chats']:,} chats: {_order(answers)}",
        f"duplicates {answers['duplicates']:,}",
    )


def _order(answers: Mapping[str, Any]) -> str:
    return "each in order" if answers["in_order"] else f"{answers['out_of_order']:,} NOT IN ORDER"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chatlanes.sandbox.report", description=__doc__)
    parser.add_argument("url", help="of the simulator")
    parser.add_argument("--left-over", type=int, default=0, help="backlog of an earlier run")
    options = parser.parse_args()
    report = ProgressReport(Simulator(options.url, token=""), Intake.connect(load()), options.left_over)
    said = report.line()
    while True:
        time.sleep(EVERY_S)
        now = report.line()
        if now != said:
            print(now, flush=True)  # noqa: T201 - its purpose
        said = now


if __name__ == "__main__":
    main()
