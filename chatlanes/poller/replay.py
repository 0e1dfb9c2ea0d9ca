"""`chatlanes poller replay FILE`: appends the updates of a file, one JSON object a line, to the end of their lanes.

Guarantees that the updates it reports as appended are durable, in the order of the file, and that a line which is not
an update is reported by its number and not appended. Does not append updates that were appended in the last 48 h: they
are dropped as seen, so a replay may be repeated. USER_RATE does not hold for them.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import orjson
from redis.exceptions import RedisError

from celery_lanes.errors import complaint
from celery_lanes.protocol.keys import SEEN_TTL_S
from chatlanes.poller.bot_api import BATCH, LARGEST_UPDATE_ID, has_id
from chatlanes.poller.custom import CustomEndpoints
from chatlanes.poller.factory import poller_of
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import Stop, Stopping
from chatlanes.settings import Settings
from chatlanes.updates.added_bots import NotOpenedError, added_bot

log = logging.getLogger("poller")

STDIN = "-"
#: In a file of another kind every line is bad.
MOST_BAD_LINES_LOGGED = 20


def replay(settings: Settings, stop: Stop, *, file: str, bot_name: str) -> int:
    """The exit code: 1 if a line was not an update or the end was not reached; 2 if the replay could not begin."""
    bots = {bot.bot_name: bot for bot in settings.served}
    try:
        bot = bots.get(bot_name) or added_bot(settings, bot_name)
    except NotOpenedError as error:
        return _refuse(str(error))
    except RedisError as error:
        return _refuse(f"Redis does not answer: {complaint(error)}. Its added bots are not known")
    if bot is None:
        named = ", ".join(filter(None, bots)) or "no bots"
        return _refuse(f"--bot {bot_name or 'is missing'}: BOTS names {named}")
    try:
        opened = _open(file)
    except OSError as error:
        return _refuse(f"{file} cannot be read: {error.strerror}")
    lines = JsonLinesSource(opened)
    poller = poller_of(bot.model_copy(update={"user_rate": None}), stop, CustomEndpoints(source=lines))
    with suppress(Stopping):  # before the first line
        poller.run()
    return _report(file, lines, poller.progress)


class JsonLinesSource:
    """A source. `durable`: how many lines of the file are processed; `bad`: how many of them were not updates."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.durable = 0
        self.bad = 0
        self.is_over = False

    def __iter__(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        number = 0
        # The reading thread closes the file: closing it elsewhere would wait for a read that may never return.
        with self._file:
            for number, line in enumerate(self._file, 1):
                batch += self._read(number, line)
                if len(batch) == BATCH:
                    yield batch
                    # The next batch was requested, so this one is durable.
                    self.durable, batch = number, []
            if batch:
                yield batch
        self.durable, self.is_over = number, True

    def _read(self, number: int, line: bytes) -> list[Any]:
        """The update of a line, as a list. An empty line has none, and is not an error."""
        text = line.strip().removeprefix(b"\xef\xbb\xbf")
        if not text:
            return []
        try:
            update = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            return self._bad(number, f"is not JSON: {error}")
        return [update] if has_id(update) else self._bad(number, f"has no update_id from 0 to {LARGEST_UPDATE_ID}")

    def _bad(self, number: int, why: str) -> list[Any]:
        self.bad += 1
        if self.bad <= MOST_BAD_LINES_LOGGED:
            log.error("line %d %s", number, why)
        elif self.bad == MOST_BAD_LINES_LOGGED + 1:
            log.error("line %d is bad too; further bad lines are only counted", number)
        return []


def _open(path: str) -> BinaryIO:
    # Not sys.stdin: at exit Python would wait for a read of it that may never return.
    return open(0, "rb", closefd=False) if path == STDIN else open(path, "rb")


def _report(path: str, lines: JsonLinesSource, progress: Progress) -> int:
    name = "stdin" if path == STDIN else path
    _say(
        f"{name}: {lines.durable} lines, {progress.received} updates: "
        f"{progress.added} appended, {progress.seen} seen before, "
        f"{progress.buried} buried, {progress.dropped} filtered out, {lines.bad} lines that are not updates; "
        f"backlog {progress.pending}"
    )
    if progress.seen:
        _say(f"updates that were appended in the last {SEEN_TTL_S // 3600} h are not appended again")
    if not lines.is_over:
        _say(f"stopped before the end: lines up to {lines.durable} are in the lanes. Run it again for the rest")
    return int(lines.bad > 0 or not lines.is_over)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _refuse(why: str) -> int:
    sys.stderr.write(why + "\n")
    return 2
