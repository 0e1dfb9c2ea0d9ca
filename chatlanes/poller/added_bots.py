"""Polls the bots that were added while the deployment runs (BOTS_KEY): starts and stops with each change.

Guarantees that an added bot is polled within LOOK_EVERY_S + the time of a request, that a removed one is not polled
again, and the promises of every poller (loop.py). One poller leads for all of them. They share the lead, the client of
Telegram and a few connections to Redis, so that a bot costs one thread and one connection: that of its long poll.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from threading import Thread

from celery_lanes.errors import ServerUnfit
from celery_lanes.protocol import witness_of
from chatlanes.logs.ids import thread_of
from chatlanes.poller.bot_api import Telegram, TokenRefusedError, client_of
from chatlanes.poller.factory import log_durability, redis_retry_of, telegram_retry_of
from chatlanes.poller.filter import Filter
from chatlanes.poller.lanes_sink import LanesSink
from chatlanes.poller.leader_election import ADDED_BOTS, ANSWER_WITHIN_S, LeaderElection
from chatlanes.poller.loop import APPEND_GRACE_S, Poller
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import GaveUpError, OwnThreadStop, Stop, Stopping
from chatlanes.poller.telegram_source import TelegramSource
from chatlanes.settings import Settings
from chatlanes.settings.bots import AddedBot
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.added_bots import LOOK_EVERY_S, Followed, Registry
from chatlanes.updates.connection import connect_to
from chatlanes.updates.intake import AppendChannel, Intake
from chatlanes.updates.words import WORDS

log = logging.getLogger("poller")

#: Errors that no retry fixes. The message says what to do.
FINAL = (TokenRefusedError, GaveUpError, ServerUnfit, ImportPathError)
#: After an unexpected failure. The process continues with the other bots, so no supervisor restarts this one.
RESTART_AFTER_S = 30.0
#: An append takes a few ms. With this many connections, one that waits for the disk does not delay all bots.
CHANNELS = 8


def poll_until_stopped(poll: Callable[[], None], stop: Stop, until: str) -> bool:
    """Runs one of many bots on this thread, again after a failure. False if it cannot be polled `until` something
    changes.
    """
    with suppress(Stopping):
        while not stop.is_requested:
            try:
                poll()
            except FINAL as error:
                log.error("%s. This bot is not polled until %s; the others are.", error, until)
                return False
            except Exception:
                log.exception("failed; restarts in %d s. Telegram keeps unconfirmed updates", RESTART_AFTER_S)
                stop.sleep(RESTART_AFTER_S)
    return True


@dataclass(frozen=True)
class _Polled:
    bot: AddedBot
    stop: OwnThreadStop
    thread: Thread

    def serves(self, bot: AddedBot | None) -> bool:
        """True if this thread continues with these settings: the bot was added again, with the same token. A second
        long poll beside the one in progress would be refused with 409.
        """
        is_same = bot is not None and (bot.token, bot.username) == (self.bot.token, self.bot.username)
        return bot is self.bot or (is_same and self.thread.is_alive() and not self.stop.is_requested)

    @property
    def is_busy(self) -> bool:
        """True if it has something to finish."""
        return self.thread.is_alive() and not self.stop.may_be_left


class AddedPollers:
    """The pollers of one process."""

    def __init__(self, settings: Settings, stop: Stop) -> None:
        """Raises SettingsError without what BOTS_KEY needs."""
        self._settings = settings
        self._stop = stop
        self._followed = Followed(Registry.connect(settings))
        self._polled: dict[int, _Polled] = {}

    def run(self) -> None:
        """Polls until the stop request. Raises ServerUnfit and Stopping."""
        redis_retry = redis_retry_of(self._stop)
        with ExitStack() as resources:
            resources.callback(self._followed.registry.close)
            self._http = resources.enter_context(closing(client_of(self._settings.bot_api_url)))
            self._channels = redis_retry.call(lambda: [AppendChannel(self._settings) for _ in range(CHANNELS)])
            log_durability(self._channels[0])
            client = resources.enter_context(closing(connect_to(self._settings, ANSWER_WITHIN_S)))
            witness = witness_of(self._settings.redis_url, WORDS)
            self._lead = LeaderElection(client, ADDED_BOTS, redis_retry, self._stop, witness)
            resources.callback(self._lead.resign)
            resources.callback(self._end)
            self._lead.take()  # a standby has no thread for any bot
            while True:
                if self._followed.look():
                    self._follow()
                self._stop.sleep(LOOK_EVERY_S)

    def _follow(self) -> None:
        """Stops the bots that were removed or changed, and starts those that are new."""
        served = self._followed.served
        for bot_id, polled in list(self._polled.items()):
            if not polled.serves(served.get(bot_id)):
                polled.stop.request()
                del self._polled[bot_id]
        new = [bot for bot_id, bot in served.items() if bot_id not in self._polled]
        for bot in new:
            stop = OwnThreadStop()
            thread = Thread(target=self._poll, args=(bot, stop), name=thread_of(bot.bot_name), daemon=True)
            self._polled[bot.bot_id] = _Polled(bot, stop, thread)
            thread.start()
        log.info("polling %d added bots, %d of them since the last change", len(served), len(new))

    def _poll(self, bot: AddedBot, stop: OwnThreadStop) -> None:
        poll_until_stopped(lambda: self._poller_of(bot, stop).run(), stop, "it is added again")

    def _poller_of(self, bot: AddedBot, stop: Stop) -> Poller:
        telegram = Telegram(bot.bot_api_url, bot.token, bot.allowed_updates, http=self._http)
        intake = Intake(self._channels[bot.bot_id % CHANNELS], bot, bot.own_name)
        progress = Progress()
        sink = LanesSink(intake, Filter(bot), self._lead, bot.max_pending, progress, redis_retry_of(stop), stop)
        retry = telegram_retry_of(bot, stop)
        return Poller(
            TelegramSource(telegram, self._lead, sink, stop, retry, bot.poll_timeout), sink, progress, stop, ExitStack()
        )

    def _end(self) -> None:
        """Waits for the appends in flight. Long polls are not ended: they confirm only updates that are durable."""
        for polled in self._polled.values():
            polled.stop.request()
        until_s = time.monotonic() + APPEND_GRACE_S
        while time.monotonic() < until_s and any(polled.is_busy for polled in self._polled.values()):
            time.sleep(0.01)
