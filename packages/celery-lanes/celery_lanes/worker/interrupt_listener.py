"""Notices that newer messages have interrupted runs of this process: one thread and one connection for all of them.

Guarantees that a run that is watched learns of its interrupt within milliseconds while Redis is connected, and when it
is connected again. Does not guarantee that the run stops: its commands are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from kombu.log import get_logger
from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.protocol import Store, keys
from celery_lanes.runtime import clock, threads

logger = get_logger(__name__)

#: The pause after an error.
_AGAIN_AFTER_S = 1.0
#: How long to wait for a message before the connection is checked.
_CHECK_EVERY_S = 15.0
#: Ends a notice that is not of an interrupt (joining.lua).
ARRIVED = " arrived"
#: Called when a message has arrived, and when one may have arrived unnoticed.
ArrivalCalls = tuple[Callable[[], None], Callable[[Store], None]]
#: How many notices without a run are remembered: of runs that have not begun yet, or are those of another child.
_MOST_EARLY = 1_000


class InterruptListener:
    """The watched runs of one process. `start`, or the first one, starts the thread, which listens until the process
    ends.
    """

    def __init__(self, holder: str, connect: Callable[[], Redis]) -> None:
        self._holder = holder
        self._connect = connect
        self._lock = threads.lock()
        self._runs: dict[str, tuple[Callable[[], None], Callable[[Store], None]]] = {}  # by tag
        self._arrivals: dict[str, ArrivalCalls] = {}  # by tag
        self._early: dict[str, None] = {}  # the tags of notices that arrived before their run began
        self._subscribed_s = inf  # clock.now_s
        self._is_started = self._is_failing = False

    def start(self) -> None:
        """Listen from now on. A run that is handed out later costs no check of its lease."""
        with self._lock:
            starts, self._is_started = not self._is_started, True
        if starts:
            threads.start_thread(self._listen)

    def watch(
        self,
        tag: str,
        interrupt: Callable[[], None],
        find_missed: Callable[[Store], None],
        handed_out_s: float,
        arrivals: ArrivalCalls | None = None,
    ) -> bool:
        """Call `interrupt` when the run with this tag, which was handed out no earlier than `handed_out_s`
        (clock.now_s), is interrupted: on another thread, or now if it has been. `arrivals` are called likewise.

        False: an interrupt may have been missed, so the caller calls `find_missed`. A process that does not listen yet
        calls it for each of its runs when it does.
        """
        with self._lock:
            self._runs[tag] = interrupt, find_missed
            if arrivals is not None:
                self._arrivals[tag] = arrivals
            is_early = self._early.pop(tag, self) is None
        self.start()
        if is_early:
            interrupt()
        return self._subscribed_s == inf or self._subscribed_s < handed_out_s

    def forget(self, tag: str) -> None:
        """The run has ended."""
        with self._lock:
            self._runs.pop(tag, None)
            self._arrivals.pop(tag, None)

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
            self._subscribed_s = inf
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
                    self._subscribed_s, self._is_failing = clock.now_s(), False
                    self._find_missed(Store(client))
                elif message["type"] == "message":
                    self._take_notice(message["data"].decode())

    def _take_notice(self, notice: str) -> None:
        tag = notice.removesuffix(ARRIVED)
        if tag == notice:
            self._interrupt(tag)
        elif calls := self._arrivals.get(tag):
            calls[0]()

    def _find_missed(self, store: Store) -> None:
        """Notices were lost while this process was not subscribed."""
        with self._lock:
            calls = [*self._arrivals.values(), *self._runs.values()]
        for _, find_missed in calls:
            try:
                find_missed(store)
            except (RedisError, OSError):
                raise
            except Exception:
                logger.exception("lanes: a run was not told of its interrupt")

    def _interrupt(self, tag: str) -> None:
        with self._lock:
            calls = self._runs.get(tag)
            if calls is None:
                self._early[tag] = None
                if len(self._early) > _MOST_EARLY:
                    del self._early[next(iter(self._early))]
        if calls is not None:
            with suppress(Exception):
                calls[0]()
