"""Listens for interrupts: a newer message has ended a run of this process.

Guarantees that a run that is watched learns of its interrupt within milliseconds while Redis is connected, and when it
is connected again. Does not guarantee that the run stops: its commands are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kombu.log import get_logger
from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.protocol import Store, keys
from celery_lanes.runtime import threads
from celery_lanes.runtime.threads import run_blocking

logger = get_logger(__name__)

#: How long a run waits for the first subscription of its process. Without one, the renewals find its interrupt.
_SUBSCRIBED_WITHIN_S = 1.0
#: The pause after an error.
_AGAIN_AFTER_S = 1.0
#: How long to wait for a message before the connection is checked.
_CHECK_EVERY_S = 15.0


class InterruptListener:
    """The watched runs of one process. The first one starts the thread, which listens until the process ends."""

    def __init__(self, holder: str, connect: Callable[[], Redis]) -> None:
        self._holder = holder
        self._connect = connect
        self._lock = threads.lock()
        self._runs: dict[str, Callable[[], None]] = {}  # by tag
        self._is_started = self._is_subscribed = False
        self._is_failing = False

    def watch(self, tag: str, interrupt: Callable[[], None]) -> None:
        """Call `interrupt` on another thread when the run with this tag is interrupted. The caller checks the lease
        afterwards: it may have been interrupted before.
        """
        with self._lock:
            self._runs[tag] = interrupt
            starts, self._is_started = not self._is_started, True
        if starts:
            threads.start_thread(self._listen)
        if not self._is_subscribed:
            run_blocking(self._wait_until_subscribed)

    def forget(self, tag: str) -> None:
        """The run has ended."""
        with self._lock:
            self._runs.pop(tag, None)

    def _wait_until_subscribed(self) -> None:
        signal = threads.Signal()
        for _ in range(round(_SUBSCRIBED_WITHIN_S / 0.01)):
            if self._is_subscribed or signal.wait(0.01):
                return

    def _listen(self) -> None:
        pause = threads.Signal()
        while True:
            try:
                self._listen_until_error()
            except (RedisError, OSError) as error:
                if not self._is_failing:
                    logger.warning("lanes: cannot listen for interrupts: %s. Trying again.", error)
                self._is_failing = True
            except Exception:
                logger.exception("lanes: the thread that listens for interrupts failed; it continues")
            self._is_subscribed = False
            pause.wait(_AGAIN_AFTER_S)

    def _listen_until_error(self) -> None:
        client = self._connect()
        with client, client.pubsub() as listener:
            listener.subscribe(keys.INTERRUPTS + self._holder)
            while True:
                message: Any = listener.get_message(timeout=_CHECK_EVERY_S)
                if message is None:
                    listener.ping()
                elif message["type"] == "subscribe":
                    self._is_subscribed, self._is_failing = True, False
                    self._interrupt_lost(Store(client))
                elif message["type"] == "message":
                    self._interrupt(message["data"].decode())

    def _interrupt_lost(self, store: Store) -> None:
        """Notices were lost while there was no subscription."""
        with self._lock:
            tags = [*self._runs]
        for tag in tags:
            message_id, _, fence = tag.rpartition("#")
            if not store.holds(message_id, fence):
                self._interrupt(tag)

    def _interrupt(self, tag: str) -> None:
        with self._lock:
            interrupt = self._runs.get(tag)
        if interrupt is not None:
            with suppress(Exception):
                interrupt()
