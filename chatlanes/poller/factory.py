"""Builds a poller from settings.

Guarantees that the poller is ready to run: Telegram and Redis have answered, if it needs them. Reads neither the
environment nor arguments: the entry points do.
"""

import logging
from contextlib import ExitStack, closing

from redis.exceptions import AuthenticationError, ConnectionError, RedisError, TimeoutError  # noqa: A004

from celery_lanes.protocol import witness_of
from chatlanes.poller.bot_api import Telegram, TelegramTroubleError
from chatlanes.poller.custom import STANDARD, CustomEndpoints, CustomSink, CustomSource
from chatlanes.poller.filter import Filter
from chatlanes.poller.lanes_sink import LanesSink
from chatlanes.poller.leader_election import ANSWER_WITHIN_S, RESIGN_GRACE_S, LeaderElection
from chatlanes.poller.loop import Poller, Sink, Source
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import Retry, Stop, Stopping
from chatlanes.poller.telegram_source import TelegramSource
from chatlanes.settings import Settings
from chatlanes.updates import check_order_by
from chatlanes.updates.collecting import grouping
from chatlanes.updates.connection import connect_to
from chatlanes.updates.intake import TIMEOUT_S, AppendChannel, Intake, rating_of
from chatlanes.updates.routing import OwnName, controlling, unknown
from chatlanes.updates.words import WORDS

log = logging.getLogger("poller")

#: Redis is in our own network, so longer waits would only delay updates.
LONGEST_WAIT_FOR_REDIS_S = 5.0
#: The backlog for the last log line must arrive within this time after the stop request. It is read after the lead is
#: resigned: if Redis has not answered the resignation by then, the poller does not wait for it a second time.
BACKLOG_GRACE_S = RESIGN_GRACE_S


def check(settings: Settings, given: CustomEndpoints = STANDARD) -> None:
    """Checks settings that need no server. Raises SettingsError without a token, and ImportPathError."""
    Filter(settings)
    if given.sink is None:
        check_order_by(settings.order_by)
        grouping(settings)
        controlling(settings.control)
        rating_of(settings)
    if given.source is None or given.sink is None:
        settings.token  # noqa: B018 - raises


def poller_of(settings: Settings, stop: Stop, given: CustomEndpoints = STANDARD) -> Poller:
    """A poller from Telegram, or the `given` source, into the lanes, or the `given` sink. Waits until both answer.

    Raises the errors of `check`, and TokenRefusedError, GaveUpError, ServerUnfit, Stopping.
    """
    check(settings, given)
    with ExitStack() as resources:
        telegram_retry, redis_retry = telegram_retry_of(settings, stop), redis_retry_of(stop)
        # Telegram first, because a wrong token is the most common mistake.
        telegram = None if given.source is not None else _telegram(settings, telegram_retry, resources)
        intake = None if given.sink is not None else redis_retry.call(lambda: intake_of(settings, telegram=telegram))
        if intake:
            resources.callback(intake.close)
        # The election uses the Redis of the lanes. Only Telegram as a source may have several pollers.
        lead = _lead(settings, stop, redis_retry, resources) if telegram and intake else None
        filtering, progress = Filter(settings), Progress(of_telegram=telegram is not None)
        sink: Sink
        if intake:
            sink = LanesSink(intake, filtering, lead, settings.max_pending, progress, redis_retry, stop)
        elif given.sink is not None:
            sink = resources.enter_context(closing(CustomSink(given.sink, filtering, progress, stop, given.loop)))
        source: Source
        if telegram:
            source = TelegramSource(telegram, lead, sink, stop, telegram_retry, settings.poll_timeout)
        elif given.source is not None:
            source = CustomSource(given.source, sink, stop, given.loop)
        resources.callback(lambda: progress.log(_backlog(sink, stop)))
        if lead:
            # Before the others. If the process dies before this, the next poller must wait until the lease expires.
            resources.callback(lead.resign)
        return Poller(source, sink, progress, stop, resources.pop_all())


def _backlog(sink: Sink, stop: Stop) -> int | None:
    """The backlog now; None if it cannot be read in time."""
    try:
        return stop.run(sink.size, BACKLOG_GRACE_S)
    except (Exception, Stopping):
        return None


def telegram_retry_of(settings: Settings, stop: Stop) -> Retry:
    longest_s, give_up_after_s = settings.poll_retry_max, settings.poll_give_up_after
    return Retry("Telegram", TelegramTroubleError, stop, longest_s=longest_s, give_up_after_s=give_up_after_s)


def redis_retry_of(stop: Stop) -> Retry:
    return Retry("Redis", RedisError, stop, longest_s=LONGEST_WAIT_FOR_REDIS_S, advice=redis_advice)


def redis_advice(error: Exception) -> str:
    """Advice for an error of a server that does not answer; empty for errors that need none."""
    if not isinstance(error, ConnectionError | TimeoutError) or isinstance(error, AuthenticationError):
        return ""
    return "start Redis there, or set REDIS_URL to where it runs"


def intake_of(settings: Settings, timeout_s: float = TIMEOUT_S, telegram: Telegram | None = None) -> Intake:
    """Connects to Redis, and logs how durable it is. Raises RedisError, ServerUnfit.

    `telegram` is asked for the bot's username at the first command that names a bot.
    """
    intake = Intake.connect(settings, timeout_s, OwnName(telegram.username) if telegram else unknown)
    log_durability(intake)
    return intake


def log_durability(of: Intake | AppendChannel) -> None:
    """Log how durable this Redis is, and its problems."""
    log.log(logging.INFO if of.durability.safe else logging.WARNING, "%s", of.durability)
    for sentence in of.advice:
        log.warning("%s", sentence)


def _telegram(settings: Settings, telegram_retry: Retry, resources: ExitStack) -> Telegram:
    """The Bot API client, once Telegram answers. Logs the bot and the settings of the poller."""
    telegram = Telegram(settings.bot_api_url, settings.token, settings.allowed_updates)
    resources.callback(telegram.close)
    _log_start(settings, telegram_retry.call(telegram.username))
    return telegram


def _lead(settings: Settings, stop: Stop, redis_retry: Retry, resources: ExitStack) -> LeaderElection:
    client = resources.enter_context(closing(connect_to(settings, ANSWER_WITHIN_S)))
    return LeaderElection(client, settings.bot_id, redis_retry, stop, witness_of(settings.redis_url, WORDS))


def _log_start(settings: Settings, username: str) -> None:
    log.info(
        "bot @%s at %s: ALLOWED_UPDATES=%s POLL_TIMEOUT=%d MAX_PENDING=%d ORDER_BY=%s QUEUES=%d",
        username,
        settings.bot_api_url,
        ",".join(settings.allowed_updates) if settings.allowed_updates is not None else "(as last set)",
        settings.poll_timeout,
        settings.max_pending,
        settings.order_by,
        settings.queues,
    )
