"""Prints the progress of the simulated bot, if it has changed: each second in a terminal, ever less often in a log.

The figures are those of the simulator and of Redis, not of the poller or the workers. Every update is either handled,
waiting or buried.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import requests
from redis.exceptions import RedisError

from celery_lanes.protocol import Store, keys
from chatlanes.settings import Settings, load
from chatlanes.updates.connection import connect_to
from chatlanes_sandbox.simulator import Simulator

#: Prefixes of the methods that send a message.
SENDS = ("send", "copyMessage", "forwardMessage")
#: Pauses between two lines of a log.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 3.0, 60.0


class ProgressReport:
    """`left_over`: the updates that an earlier run left in the lanes and the dead letters; None: all that are there."""

    def __init__(self, simulator: Simulator, settings: Settings, left_over: int | None = None) -> None:
        self._simulator = simulator
        self._store = Store(connect_to(settings))
        self._group = settings.queue_group
        self._left_over = sum(self._stored()) if left_over is None else left_over

    def arguments(self, *, is_live: bool) -> tuple[str, ...]:
        """The same report, as arguments of this module."""
        return (self._simulator.url, str(self._left_over), *(["live"] if is_live else []))

    def line(self) -> str:
        try:
            return line(self._simulator.stats(), *self._stored(), self._left_over)
        except (RedisError, requests.RequestException) as error:
            return f"no figures: {type(error).__name__}"

    def _stored(self) -> tuple[int, int]:
        """The updates in the lanes, and those in the dead letters."""
        return self._store.pending(self._group), int(self._store.client.zcard(keys.DEAD))


def line(stats: Mapping[str, Any], backlog: int, buried: int, left_over: int = 0) -> str:
    """`stats` are those of the simulator. docs/sandbox.md says what each figure counts."""
    updates = stats["added"] + left_over
    # Between its append and its confirmation an update is both at the simulator and in its lane.
    waiting = max(0, min(stats["pending"] + backlog, updates - buried))
    handled = max(0, updates - buried - waiting)
    places = [f"{handled:,} handled", f"{waiting:,} waiting", *([f"{buried:,} buried"] if buried else [])]
    sent = sum(count for name, count in stats["calls"].items() if name.startswith(SENDS) and name != "sendChatAction")
    answers = [_answers(stats["answers"])] if stats["answers"]["total"] else []
    return " · ".join(
        [f"{_count(updates, 'update')}: {', '.join(places)}", *answers, f"{_count(sent, 'message')} sent"]
    )


def _answers(answers: Mapping[str, Any]) -> str:
    order = "in order" if answers["in_order"] else f"{answers['out_of_order']:,} OUT OF ORDER"
    twice = f"{answers['duplicates']:,} TWICE" if answers["duplicates"] else "none twice"
    return f"{answers['total']:,} answered, {order}, {twice}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def pauses_s(*, is_live: bool) -> Iterator[float]:
    """Between two looks."""
    pause_s = 1.0 if is_live else FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = pause_s if is_live else min(pause_s * 2, LONGEST_PAUSE_S)


def main() -> None:
    """Its arguments: the simulator's address, what an earlier run left over, and `live` for a status line."""
    url, left_over, *live = sys.argv[1:]
    report = ProgressReport(Simulator(url, token=""), load(), int(left_over))
    said = report.line()
    for pause_s in pauses_s(is_live=bool(live)):
        time.sleep(pause_s)
        now = report.line()
        if now != said:
            print(now, flush=True)  # noqa: T201 - its purpose
        said = now


if __name__ == "__main__":
    main()
