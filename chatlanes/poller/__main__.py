"""`chatlanes poller`: fetches updates by long polling, or replays a file.

Guarantees that one of many bots which fails or cannot be polled does not stop the others: each has a thread, a lead, a
backlog limit and connections of its own. Guarantees of a replay that the updates it reports as appended are durable, in
the order of the file, and that any other line is reported by its number. Updates of the last 48 h are dropped as seen,
so a replay may be repeated. USER_RATE does not hold for it.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, BinaryIO

import click
import orjson
from redis.exceptions import RedisError

from celery_lanes.errors import complaint
from celery_lanes.protocol.keys import SEEN_TTL_S
from chatlanes.logs.ids import thread_of
from chatlanes.poller.added_bots import AddedPollers, poll_until_stopped
from chatlanes.poller.bot_api import BATCH, LARGEST_UPDATE_ID, has_id
from chatlanes.poller.custom import CustomEndpoints
from chatlanes.poller.factory import check, poller_of
from chatlanes.poller.program import log_options, run
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import Stop, Stopping
from chatlanes.poller.webhook.command import webhook
from chatlanes.settings import Settings
from chatlanes.settings.bots import AddedBot
from chatlanes.updates.added_bots import NotOpenedError, added_bot
from chatlanes.updates.deployments import present

log = logging.getLogger("poller")

#: Polls one bot until the stop request.
Poll = Callable[[Settings], None]

STDIN = "-"
#: In a file of another kind every line is bad.
MOST_BAD_LINES_LOGGED = 20


@log_options
@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND]")
@click.pass_context
def poller(ctx: click.Context) -> None:
    """Fetch updates from Telegram by long polling, and append them to the lanes.

    Needs BOT_TOKEN (or BOTS, or BOTS_KEY) and REDIS_URL. These and all other settings come from the environment, or
    from the file .env in this folder; `chatlanes settings` describes them. BOT is not imported here: the workers run
    it.

    Several pollers may run: one leads, the others stand by. Ctrl-C or SIGTERM stops it within 2 s.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(poll)


@log_options
@poller.command()
def poll() -> None:
    """Fetch updates by long polling (the default)."""
    run(_poll, traced="poller")


@log_options
@poller.command("replay")
@click.argument("file")
@click.option(
    "--bot",
    metavar="NAME",
    help="The bot of the updates, if there are several: its name in BOTS, or the id of an added one.",
)
def replay_file(file: str, bot: str | None) -> None:
    """Append the updates of FILE to their lanes.

    FILE has one JSON object a line; - reads the standard input. Updates that were appended within 48 h are skipped, so
    a replay may be repeated.
    """
    run(partial(_replay, file=file, bot_name=bot or ""), traced="replay")


poller.add_command(webhook)


def _poll(settings: Settings, stop: Stop) -> int:
    """Polls one bot on this thread, or each of several on its own thread. Ends with 1 if none of them can be polled."""
    for bot in settings.served:
        check(bot)
    with present("poller", settings, stop.run):
        if settings.bots is None and settings.bots_key is None:
            poller_of(settings, stop).run()
        elif not _poll_many(settings, stop):
            log.error("no bot can be polled")
            return 1
    log.info("stopped")
    return 0


# -- many bots


def _poll_many(settings: Settings, stop: Stop) -> bool:
    """Polls the bots of the file or BOT_TOKEN, and those that are added. False if none of them could be polled."""
    if settings.bots_key is not None and settings.webhook_url is not None:
        log.warning("added bots have webhooks, because WEBHOOK_URL is set: they are not polled (chatlanes webhook)")
    if settings.bots_key is None or settings.webhook_url is not None:
        return poll_all(settings.served, lambda bot: poller_of(bot, stop).run(), stop)
    check(AddedBot.of(settings, "1:unused", settings.bot))
    static = Thread(target=poll_all, args=(settings.served, lambda bot: poller_of(bot, stop).run(), stop), daemon=True)
    static.start()
    try:
        return poll_until_stopped(lambda: AddedPollers(settings, stop).run(), stop, "the poller is restarted")
    finally:
        static.join()


def poll_all(bots: Sequence[Settings], poll: Poll, stop: Stop) -> bool:
    """Polls every bot until the stop request. False if none of them could be polled."""
    failed: list[Settings] = []
    threads = [
        # Each log line of a bot contains the name of its thread.
        Thread(target=_poll_one, args=(bot, poll, stop, failed), name=thread_of(bot.bot_name), daemon=True)
        for bot in bots
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return len(failed) < len(bots)


def _poll_one(bot: Settings, poll: Poll, stop: Stop, failed: list[Settings]) -> None:
    """Polls a bot until the stop request. Adds it to `failed` if it cannot be polled."""
    if not poll_until_stopped(lambda: poll(bot), stop, "the poller is restarted"):
        failed.append(bot)


# -- a replay


def _replay(settings: Settings, stop: Stop, *, file: str, bot_name: str) -> int:
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
    progress = Progress()
    with suppress(Stopping):  # before the first line
        poller = poller_of(bot.model_copy(update={"user_rate": None}), stop, CustomEndpoints(source=lines))
        progress = poller.progress
        poller.run()
    return _report(file, lines, progress)


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
    click.echo(
        f"{name}: {lines.durable} lines, {progress.received} updates: "
        f"{progress.added} appended, {progress.seen} seen before, "
        f"{progress.buried} buried, {progress.dropped} filtered out, {lines.bad} lines that are not updates; "
        f"backlog {progress.pending}"
    )
    if progress.seen:
        click.echo(f"updates that were appended in the last {SEEN_TTL_S // 3600} h are not appended again")
    if not lines.is_over:
        click.echo(f"stopped before the end: lines up to {lines.durable} are in the lanes. Run it again for the rest")
    return int(lines.bad > 0 or not lines.is_over)


def _refuse(why: str) -> int:
    click.echo(why, err=True)
    return 2


if __name__ == "__main__":
    poller(prog_name="chatlanes poller")
