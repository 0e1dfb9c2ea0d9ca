"""Notices that Redis lost what it held: an emptied or exchanged database, or one that went back to an older state.

Promises one CRITICAL line of each process that had seen more than is there, and one record in Redis for each loss,
which stays until a person acknowledges it. Needs no round trip: appends and sweeps return what is compared.
Does not notice a loss while no process runs, because only processes remember what they saw; nor an older state whose
totals had grown past what a process had seen before that process looked again.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime
from threading import Lock
from weakref import WeakValueDictionary

from redis.exceptions import RedisError

from chatlanes.lanes.protocol.replies import Appended, History, Loss
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.runtime import clock

log = logging.getLogger(__name__)


class Witness:
    """What a process has seen of one database. Threads may share it.

    Totals only grow, so an answer is compared with what was known before its question was sent.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: History | None = None
        self._noticed_s = float("-inf")

    @property
    def known(self) -> History | None:
        """To be read before a question is sent."""
        return self._known

    def noticed_within(self, seconds: float) -> bool:
        """Whether a loss was noticed so lately."""
        return clock.now_s() - self._noticed_s <= seconds

    def look(self, store: Store) -> None:
        """Asks Redis. Raises RedisError."""
        known = self._known
        self.compare(store, known, store.look())

    def appended(self, store: Store, known: History | None, appended: Appended) -> None:
        """After an append that was sent when `known` was known."""
        if appended.before is not None:
            self.compare(store, known, appended.before)
            self._advance(appended)

    def compare(self, store: Store, known: History | None, found: History) -> None:
        """Report a loss when `found` is less than what was `known` before the question was sent."""
        with self._lock:
            now = self._known
            if known is None or now is None:
                self._known = _furthest(now, found)
            elif known.identity == now.identity:  # else another thread has reported it
                if _is_loss(known, found):
                    with suppress(RedisError):  # the next look reports it
                        self._report(store, now, found)
                else:
                    self._known = _furthest(now, found)

    def _report(self, store: Store, known: History, found: History) -> None:
        identity, loss = store.lose(known, found)
        self._known = found._replace(identity=identity)
        self._noticed_s = clock.now_s()
        level = logging.WARNING if loss.is_acknowledged else logging.CRITICAL
        log.log(level, "%s", sentence(loss))

    def _advance(self, appended: Appended) -> None:
        with self._lock:
            known, before = self._known, appended.before
            if known is not None and before is not None and known.identity == before.identity:
                total = max(known.appended, before.appended + appended.added)
                pending = before.pending + appended.added - appended.buried
                self._known = known._replace(appended=total, pending=pending)


_WITNESSES: WeakValueDictionary[str, Witness] = WeakValueDictionary()


def witness_of(url: str) -> Witness:
    """The process' own for this database, for as long as anybody keeps it: one loss is one line, however many bots."""
    return _WITNESSES.setdefault(url, Witness())


def sentence(loss: Loss) -> str:
    """What is known of it, and what to do."""
    what = "an older state of it" if loss.first > 1 or loss.again else "an empty or another database"
    if loss.last < loss.first:
        gone = "no update is known to be gone"
    else:
        gone = f"updates {loss.first:,} to {loss.last:,} of all that were appended are gone"
    again = f"; at least {loss.again:,} that were finished wait again, and run again" if loss.again else ""
    pending = f"{loss.pending or 'none'} of all were pending at the last look"
    when = datetime.fromtimestamp(loss.at_ms / 1000).astimezone().isoformat(" ", "seconds")
    return (
        f"Redis LOST what it held, {what} answers: {gone}; {pending}{again} (noticed {when}). Telegram does not send "
        "them again. Acknowledge it with `chatlanes lanes acknowledge-loss`"
    )


def _is_loss(known: History, found: History) -> bool:
    if found.identity != known.identity:
        return True
    return found.appended < known.appended or found.settled < known.settled


def _furthest(known: History | None, found: History) -> History:
    """An answer may arrive after a later one."""
    if known is None or known.identity != found.identity:
        return found
    pending = known.pending if found.appended + found.settled < known.appended + known.settled else found.pending
    return History(known.identity, max(known.appended, found.appended), max(known.settled, found.settled), pending)
