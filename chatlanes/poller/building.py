"""Builds a poller from settings: which objects there are, and who knows whom.

Promises that what it returns is ready to run: Telegram and Redis, as far as it needs them, have both answered.
Reads neither the environment nor arguments: the entry points do.
"""

import logging
from asyncio import AbstractEventLoop
from contextlib import ExitStack, closing
from dataclasses import dataclass

from redis.exceptions import RedisError

from chatlanes.lanes.protocol.data_loss import witness_of
from chatlanes.poller.backpressure import Boundless, Room
from chatlanes.poller.filter import Filter
from chatlanes.poller.given_sink import Appends, GivenSink
from chatlanes.poller.given_source import GivenBatches, GivenSource
from chatlanes.poller.lanes_sink import LanesSink
from chatlanes.poller.leader import ANSWER_WITHIN_S, Alone, Lead
from chatlanes.poller.loop import Poller, Sink, Source
from chatlanes.poller.pacing import Pace
from chatlanes.poller.report import Tally
from chatlanes.poller.responses import TelegramTroubleError
from chatlanes.poller.retry import Patience
from chatlanes.poller.stop import Stop, Stopping
from chatlanes.poller.telegram import Telegram
from chatlanes.poller.telegram_source import TelegramSource
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to
from chatlanes.updates.intake import Intake
from chatlanes.updates.routing import check_order_by

log = logging.getLogger("poller")

#: Redis is ours and near: waiting longer spares nothing, and updates are waiting.
LONGEST_WAIT_FOR_REDIS_S = 5.0
#: For the last line of the log: until so long after it was asked to stop.
BACKLOG_GRACE_S = 1.7


@dataclass(frozen=True)
class Given:
    """What takes the place of Telegram, or of the lanes; `loop` is where it is awaited, if it has to be."""

    source: GivenBatches | None = None
    sink: Appends | None = None
    loop: AbstractEventLoop | None = None


def check(settings: Settings, given: Given = Given()) -> None:
    """Finds out what needs no server. Raises SettingsError without a token, OrderByError, FilterError."""
    Filter(settings)
    if given.sink is None:
        check_order_by(settings.order_by)
    if given.source is None or given.sink is None:
        settings.token  # noqa: B018 - raises


def poller_of(settings: Settings, stop: Stop, given: Given = Given()) -> Poller:
    """From Telegram into the lanes, but for what is `given`. Waits for as long as one of them is away.

    Raises as `check` does, and TokenRefusedError, GaveUpError, ServerUnfit, Stopping.
    """
    check(settings, given)
    with ExitStack() as held:
        with_telegram, with_redis = patience_with_telegram(settings, stop), patience_with_redis(stop)
        # Telegram first: a wrong token is the commonest mistake.
        telegram = None if given.source is not None else _telegram(settings, with_telegram, held)
        intake = None if given.sink is not None else held.enter_context(closing(intake_of(settings, with_redis)))
        # Of the pollers of a bot one leads; who that is, the lanes know. Who reads another source has it alone.
        lead = _lead(settings, stop, with_redis, held) if telegram and intake else Alone()
        room = Room(intake, settings.max_pending, with_redis, stop) if intake else Boundless()
        filtering, tally = Filter(settings), Tally(of_telegram=telegram is not None)
        source: Source
        if telegram:
            pace = Pace(settings.poll_balance, settings.poll_max_delay)
            source = TelegramSource(telegram, lead, room, stop, with_telegram, settings.poll_timeout, pace)
        elif given.source is not None:
            source = GivenSource(given.source, room, stop, given.loop)
        sink: Sink
        if intake:
            sink = LanesSink(intake, filtering, lead, room, tally, with_redis)
        elif given.sink is not None:
            sink = held.enter_context(closing(GivenSink(given.sink, filtering, tally, stop, given.loop)))
        held.callback(lambda: tally.tell(_backlog(sink, stop)))
        return Poller(source, sink, lead, tally, stop, held.pop_all())


def _backlog(sink: Sink, stop: Stop) -> int | None:
    """How much is to be done now; None when that cannot be had at once."""
    try:
        return stop.run(sink.size, BACKLOG_GRACE_S)
    except (Exception, Stopping):
        return None


def patience_with_telegram(settings: Settings, stop: Stop) -> Patience:
    longest_s, give_up_after_s = settings.poll_retry_max, settings.poll_give_up_after
    return Patience("Telegram", TelegramTroubleError, stop, longest_s=longest_s, give_up_after_s=give_up_after_s)


def patience_with_redis(stop: Stop) -> Patience:
    return Patience("Redis", RedisError, stop, longest_s=LONGEST_WAIT_FOR_REDIS_S)


def intake_of(settings: Settings, with_redis: Patience) -> Intake:
    """The way into the lanes, once Redis has answered; says how durable it is. Raises ServerUnfit, Stopping."""
    intake = with_redis.until_it_works(lambda: Intake.connect(settings))
    log.log(logging.INFO if intake.durability.safe else logging.WARNING, "%s", intake.durability)
    for sentence in intake.advice:
        log.warning("%s", sentence)
    return intake


def _telegram(settings: Settings, with_telegram: Patience, held: ExitStack) -> Telegram:
    """Once it has answered; says whose updates are polled for, and how."""
    telegram = Telegram(settings.bot_api_url, settings.token, settings.allowed_updates)
    held.callback(telegram.close)
    _introduce(settings, with_telegram.until_it_works(telegram.username))
    return telegram


def _lead(settings: Settings, stop: Stop, with_redis: Patience, held: ExitStack) -> Lead:
    client = held.enter_context(closing(connect_to(settings, ANSWER_WITHIN_S)))
    return Lead(client, settings.bot_id, with_redis, stop, witness_of(settings.redis_url))


def _introduce(settings: Settings, username: str) -> None:
    log.info(
        "polling %s for @%s: ALLOWED_UPDATES=%s POLL_TIMEOUT=%d MAX_PENDING=%d ORDER_BY=%s QUEUES=%d",
        settings.bot_api_url,
        username,
        ",".join(settings.allowed_updates) if settings.allowed_updates is not None else "(as last set)",
        settings.poll_timeout,
        settings.max_pending,
        settings.order_by,
        settings.queues,
    )
