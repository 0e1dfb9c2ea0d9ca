"""Detects that Redis lost data: the database was emptied or replaced, or went back to an older state.

Guarantees that each process whose known totals are higher than those in Redis logs one CRITICAL line, and that Redis
has one record for each loss, until a person acknowledges it. This needs no round trip, because appends and sweeps
return the totals. Does not detect a loss while no process runs, or a loss after which the totals exceed the known ones
again before a process compares them.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime
from threading import Lock
from weakref import WeakValueDictionary

from redis.exceptions import RedisError

from celery_lanes.protocol.admin_verbs import Loss
from celery_lanes.protocol.client import Store
from celery_lanes.protocol.verbs import Appended, History
from celery_lanes.runtime import clock
from celery_lanes.words import NEUTRAL, Words

log = logging.getLogger(__name__)


class Witness:
    """The identity and totals of one database, as this process last saw them. Threads may share it.

    Totals only grow. An answer is compared with the totals that were known before its command was sent.
    """

    def __init__(self, words: Words = NEUTRAL) -> None:
        self._words = words
        self._lock = Lock()
        self._known: History | None = None
        self._noticed_s = float("-inf")

    @property
    def known(self) -> History | None:
        """Read it before the command whose answer is compared."""
        return self._known

    def noticed_within(self, seconds: float) -> bool:
        """True if a loss was detected within this time."""
        return clock.now_s() - self._noticed_s <= seconds

    def look(self, store: Store) -> None:
        """Reads the totals from Redis and compares them. Raises RedisError."""
        known = self._known
        self.compare(store, known, store.look())

    def appended(self, store: Store, known: History | None, appended: Appended) -> None:
        """Compares the answer of an append. `known` was read before it was sent."""
        if appended.before is not None:
            self.compare(store, known, appended.before)
            self._advance(appended)

    def compare(self, store: Store, known: History | None, found: History) -> None:
        """Reports a loss if `found` is less than the history `known` before the command was sent."""
        with self._lock:
            now = self._known
            if known is None or now is None:
                self._known = _furthest(now, found)
            elif known.identity == now.identity:  # otherwise another thread has reported it
                if _is_loss(known, found):
                    with suppress(RedisError):  # the next comparison reports it
                        self._report(store, now, found)
                else:
                    self._known = _furthest(now, found)

    def _report(self, store: Store, known: History, found: History) -> None:
        identity, loss = store.lose(known, found)
        self._known = found._replace(identity=identity)
        self._noticed_s = clock.now_s()
        level = logging.WARNING if loss.is_acknowledged else logging.CRITICAL
        log.log(level, "%s", sentence(loss, self._words))

    def _advance(self, appended: Appended) -> None:
        with self._lock:
            known, before = self._known, appended.before
            if known is not None and before is not None and known.identity == before.identity:
                added = appended.added - appended.joined
                total = max(known.appended, before.appended + added)
                pending = before.pending + added - appended.buried
                self._known = known._replace(appended=total, pending=pending)


_WITNESSES: WeakValueDictionary[str, Witness] = WeakValueDictionary()


def witness_of(url: str, words: Words = NEUTRAL) -> Witness:
    """The Witness of this process for a database: its users share it, so a loss is logged once. Lives while used."""
    return _WITNESSES.setdefault(url, Witness(words))


def sentence(loss: Loss, words: Words = NEUTRAL) -> str:
    """The extent of the loss, and what to do."""
    what = "went back to an older state" if loss.first > 1 or loss.again else "is empty or another one"
    when = datetime.fromtimestamp(loss.at_ms / 1000).astimezone().isoformat(" ", "seconds")
    gone = _gone(loss, words) if loss.first <= loss.last else f"no {words.message} is known to be gone"
    finished = f"{loss.again:,} finished {words.message}{'s' * (loss.again != 1)}"
    again = f"; {finished} may be pending again, and run again" if loss.again else ""
    forever = f" {words.lost}." if loss.first <= loss.last else ""
    return (
        f"Redis LOST data, the database {what}: {gone}{again} (detected {when}).{forever} "
        f"Acknowledge the loss with `{words.command} acknowledge-loss`"
    )


def _gone(loss: Loss, words: Words) -> str:
    """The messages that are missing. An older state still has some of those that were pending."""
    gone = f"{words.message}s {loss.first:,} to {loss.last:,} of all that were appended are gone"
    pending = min(loss.pending, loss.last - loss.first + 1)
    at_most = "at most " if pending and loss.first > 1 else ""
    return f"{gone}; {at_most}{pending or 'none'} of them were pending when last checked"


def _is_loss(known: History, found: History) -> bool:
    if found.identity != known.identity:
        return True
    return found.appended < known.appended or found.settled < known.settled


def _furthest(known: History | None, found: History) -> History:
    """The higher totals: an answer may arrive after a later one."""
    if known is None or known.identity != found.identity:
        return found
    pending = known.pending if found.appended + found.settled < known.appended + known.settled else found.pending
    return History(known.identity, max(known.appended, found.appended), max(known.settled, found.settled), pending)
