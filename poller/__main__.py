"""The command line of the poller, and the only place that builds its objects.

Exit codes: 0 after SIGTERM or SIGINT, 1 when Telegram refuses the token or Redis cannot carry lanes, 2 for a wrong
setting or argument.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

from redis.exceptions import RedisError

from poller.answer import TelegramTroubleError, TokenRefusedError
from poller.lead import ANSWER_WITHIN_S, Lead
from poller.log import start_logging
from poller.loop import Poller
from poller.patience import Patience
from poller.room import Room
from poller.stop import Stop, Stopping
from poller.tally import Tally
from poller.telegram import Telegram
from settings import Settings, SettingsError, load
from tasks.connection import connect_to
from tasks.intake import Intake
from tasks.lanes.errors import ServerUnfit
from tasks.routing import OrderByError, order_of

log = logging.getLogger("poller")

#: Telegram has outages of minutes; a bot that asks every half minute is back soon enough.
LONGEST_WAIT_FOR_TELEGRAM_S = 30.0
#: Redis is ours and near: waiting longer spares nothing, and updates are waiting.
LONGEST_WAIT_FOR_REDIS_S = 5.0
#: How long after it was asked to stop the poller still waits for Redis to take the batch in hand.
APPEND_GRACE_S = 1.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the poller until it is asked to stop; gives the exit code."""
    given = _read(arguments)
    try:
        settings = load()
    except SettingsError as error:
        return _give_up(str(error), 2)
    if settings.bot_token is None:
        return _give_up("BOT_TOKEN is not set: give it the token that @BotFather gave you", 1)
    token = settings.bot_token.get_secret_value()
    start_logging(token, verbose=given.verbose)
    return _poll(settings, token)


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m poller",
        description="Takes updates from Telegram into the lanes. Its settings come from the environment and .env.",
    )
    parser.add_argument("command", nargs="?", choices=["poll"], default="poll", help="poll: by long polling (default)")
    parser.add_argument("-v", "--verbose", action="store_true", help="a log line for every batch")
    return parser.parse_args(arguments)


def _give_up(why: str, code: int) -> int:
    print(why, file=sys.stderr)  # noqa: T201 - there is no log yet
    return code


def _poll(settings: Settings, token: str) -> int:
    stop = Stop()
    stop.ask_on_signals()
    try:
        _poller(settings, token, stop).run()
    except OrderByError as error:
        log.error("%s", error, exc_info=error.__cause__)  # what failed inside of the function's own module
        return 2
    except (TokenRefusedError, ServerUnfit) as error:
        log.error("%s", error)
        return 1
    except Stopping:
        pass  # before there was anything to poll for
    except Exception:
        log.exception("the poller failed; Telegram keeps what is not confirmed")  # the log cuts the token out
        return 1
    log.info("stopped")
    return 0


def _poller(settings: Settings, token: str, stop: Stop) -> Poller:
    """Ready to run: Telegram and Redis have both answered.

    Raises OrderByError, TokenRefusedError, ServerUnfit, Stopping.
    """
    order_of(settings.order_by)
    with_telegram = Patience("Telegram", TelegramTroubleError, stop, longest_s=LONGEST_WAIT_FOR_TELEGRAM_S, grace_s=0.0)
    with_redis = Patience("Redis", RedisError, stop, longest_s=LONGEST_WAIT_FOR_REDIS_S, grace_s=APPEND_GRACE_S)
    telegram = Telegram(settings.bot_api_url, token, settings.allowed_updates)
    _introduce(settings, with_telegram.until_it_works(telegram.username))
    intake = with_redis.until_it_works(lambda: Intake.connect(settings))
    log.log(logging.INFO if intake.durability.safe else logging.WARNING, "%s", intake.durability)
    for sentence in intake.advice:
        log.warning("%s", sentence)
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


if __name__ == "__main__":
    sys.exit(main())
