"""Builds a poller from settings: which objects there are, and who knows whom.

Promises that what it returns is ready to run: Telegram and Redis have both answered.
Reads neither the environment nor arguments: the entry points do.
"""

import logging

from redis.exceptions import RedisError

from poller.answer import TelegramTroubleError
from poller.lead import ANSWER_WITHIN_S, Lead
from poller.loop import Poller
from poller.patience import Patience
from poller.room import Room
from poller.stop import Stop
from poller.tally import Tally
from poller.telegram import Telegram
from settings import Settings
from tasks.connection import connect_to
from tasks.intake import Intake
from tasks.routing import order_of

log = logging.getLogger("poller")

#: Telegram has outages of minutes; a bot that asks every half minute is back soon enough.
LONGEST_WAIT_FOR_TELEGRAM_S = 30.0
#: Redis is ours and near: waiting longer spares nothing, and updates are waiting.
LONGEST_WAIT_FOR_REDIS_S = 5.0
#: How long after it was asked to stop the poller still waits for Redis to take the batch in hand.
APPEND_GRACE_S = 1.2


def poller_of(settings: Settings, stop: Stop) -> Poller:
    """The poller of one bot. Waits for as long as Telegram or Redis is away.

    Raises SettingsError without a token, OrderByError, TokenRefusedError, ServerUnfit, Stopping.
    """
    order_of(settings.order_by)
    with_telegram = patience_with_telegram(stop)
    with_redis = patience_with_redis(stop)
    telegram = Telegram(settings.bot_api_url, settings.token, settings.allowed_updates)
    _introduce(settings, with_telegram.until_it_works(telegram.username))
    intake = intake_of(settings, with_redis)
    return Poller(
        telegram=telegram,
        intake=intake,
        lead=Lead(connect_to(settings, ANSWER_WITHIN_S), settings.bot_id, with_redis, stop),
        room=Room(intake, settings.max_pending, with_redis, stop),
        tally=Tally(),
        stop=stop,
        with_telegram=with_telegram,
        with_redis=with_redis,
        kinds=frozenset(settings.allowed_updates or ()),
        poll_timeout_s=settings.poll_timeout,
    )


def intake_of(settings: Settings, with_redis: Patience) -> Intake:
    """The way into the lanes, once Redis has answered; says how durable it is. Raises ServerUnfit, Stopping."""
    intake = with_redis.until_it_works(lambda: Intake.connect(settings))
    log.log(logging.INFO if intake.durability.safe else logging.WARNING, "%s", intake.durability)
    for sentence in intake.advice:
        log.warning("%s", sentence)
    return intake


def patience_with_telegram(stop: Stop) -> Patience:
    return Patience("Telegram", TelegramTroubleError, stop, longest_s=LONGEST_WAIT_FOR_TELEGRAM_S, grace_s=0.0)


def patience_with_redis(stop: Stop) -> Patience:
    return Patience("Redis", RedisError, stop, longest_s=LONGEST_WAIT_FOR_REDIS_S, grace_s=APPEND_GRACE_S)


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
