"""Leader election: of all pollers of one bot one fetches, the others stand by and take over.

Guarantees that a poller whose lease ran out asks Redis who leads before it fetches, and that a batch it fetched as the
leader is not appended once another leads: every append checks the fence. Does not guarantee that only one fetches at
any moment: a process frozen between its last check of the clock and its request sends that request late. Telegram then
ends the other's long poll with a 409, and that poller polls again.

Why the append checks the fence, though what was seen is dropped anyway. A poller confirms only what it has appended,
and Telegram gives the oldest unconfirmed updates first. So every batch begins no later than the first update that was
in nobody's lane when it was fetched; appended late, behind a new leader's, what it holds was seen, or comes next.
Two things break this rule for an old leader that was frozen with a batch in hand:

* Telegram forgets some unconfirmed updates soon (an inline query after 30 s, a callback query after 150 s). The new
  leader is never given them, appends newer ones of the same chat, and the old one's would come behind those.
* Redis forgets after 48 h what it has seen: then the whole batch would run again, behind newer ones.

With the fence such a batch is dropped. Nothing is lost by that: it was never confirmed, so what Telegram still has of
it the new leader was given. A late confirm needs no fence: it names only what was appended under one.
"""

import logging
import os
import socket
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from chatlanes.lanes.errors import LeaseLost
from chatlanes.lanes.protocol.commands import Guard
from chatlanes.lanes.protocol.data_loss import Witness
from chatlanes.lanes.protocol.scripts import Argument, script
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.runtime import clock
from chatlanes.poller.runtime import Retry, Stop, Stopping

log = logging.getLogger("poller")

#: hash: fence (of the last one to take the lead), holder (host:pid, for people), until_ms (Redis' TIME)
LEADER = "poller:%d:leader"

#: A standby polls within 10 s of the leader's death, with time left for a slow machine. A leader loses its lead by a
#: pause of 4 s at the earliest, which costs a change of leaders and nothing else.
LEASE_S = 6.0
LEASE_MS = round(LEASE_S * 1000)
#: Two renewals may fail. On a thread, since the poller spends its time in calls that last longer than a lease: a long
#: poll of 50 s, a `retry_after` of minutes. Shorter polls would ask Telegram 25 times as often, and not help there.
RENEW_EVERY_S = 2.0
#: An answer that takes longer is given up, so that another attempt fits into the lease.
ANSWER_WITHIN_S = 2.0
#: After a clean stop nobody leads for as long as this; a question that changes nothing costs Redis no write.
ASK_EVERY_S = 0.5
#: While no updates come in, nothing else notices that Redis lost what it held.
LOOK_EVERY_S = 10.0
#: How long after it was asked to stop the poller still waits for Redis to hear that it resigns: the last thing it says.
RESIGN_GRACE_S = 1.2


class LeaderElection:
    """One process in the election for one bot. `client` must time out after ANSWER_WITHIN_S."""

    def __init__(
        self, client: Redis, bot_id: int, redis_retry: Retry, stop: Stop, witness: Witness | None = None
    ) -> None:
        self._client = client
        self._witness = witness or Witness()
        self._look_at_s = float("-inf")
        self._key = LEADER % bot_id
        self._with_redis = redis_retry
        self._stop = stop
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        #: What our appends are guarded by: of the lead that was taken last.
        self.guard: Guard | None = None
        self._fence = ""  # of our lead, none while we stand by
        self._until_s = float("-inf")  # clock.now_s; nobody else leads before
        self._stood_by_for = ""
        self._is_over = Event()
        self._renewing = Thread(target=self._renew_until_over, name="lead", daemon=True)

    def take(self) -> None:
        """Returns when this process leads. Raises Stopping.

        An equal guard means that nobody else has led since, also when our lease was over for a while.
        """
        while True:
            fence, leader = self._with_redis.call(self._ask)
            if fence:
                self._leads(fence)
                return
            self._stands_by(leader)
            self._stop.sleep(ASK_EVERY_S)

    def check(self) -> None:
        """Asks the clock, not Redis. Raises LeaseLost when another may lead by now: `take` knows."""
        if clock.now_s() >= self._until_s:
            raise LeaseLost("the lease of the lead is over")

    def resign(self) -> None:
        """Let another poller take over at once. The last call, whatever ended the poller."""
        self._is_over.set()
        if not self._fence:
            return
        try:
            # A renewal or an append that is still under way finds no fence of its own afterwards.
            self._stop.run(lambda: self._run("resign", fence=self._fence), RESIGN_GRACE_S)
        except (RedisError, Stopping) as error:
            log.info("the next poller waits until this one's lease is over: %s", error or "Redis is slow")

    def _ask(self) -> tuple[str, str]:
        asked_s = clock.now_s()
        answer = self._run("take", fence=self._fence, holder=self._holder, lease_ms=LEASE_MS)
        fence, leader = (each.decode() for each in answer)
        # From before the question: our lease ends no later than Redis says.
        self._until_s = asked_s + LEASE_S if fence else float("-inf")
        return fence, leader

    def _leads(self, fence: str) -> None:
        if fence != self._fence:
            self._log_if_lost()
            log.info("leading")
        self._fence, self._stood_by_for = fence, ""
        self.guard = Guard(self._key, fence)
        if not self._renewing.is_alive():
            self._renewing.start()

    def _stands_by(self, leader: str) -> None:
        self._log_if_lost()
        if leader != self._stood_by_for:
            log.info("standing by: %s leads", leader)
        self._fence, self._stood_by_for = "", leader

    def _log_if_lost(self) -> None:
        if self._fence:
            log.warning("lost the lead")

    def _renew_until_over(self) -> None:
        while not self._is_over.wait(RENEW_EVERY_S):
            with suppress(RedisError):  # the poller's own calls tell of it, and without Redis it appends nothing
                self._renew(self._fence)
                self._look()

    def _renew(self, fence: str) -> None:
        """Only ever extends: the lead of a batch in hand must not become another one unseen."""
        if not fence:
            return
        asked_s = clock.now_s()
        is_ours = self._run("renew", fence=fence, lease_ms=LEASE_MS)
        if fence == self._fence:  # else the question was about an earlier lead
            self._until_s = asked_s + LEASE_S if is_ours else float("-inf")

    def _look(self) -> None:
        if clock.now_s() >= self._look_at_s:
            self._look_at_s = clock.now_s() + LOOK_EVERY_S
            self._witness.look(Store(self._client))

    def _run(self, verb: str, **arguments: Argument) -> Any:
        lua = script(verb, "chatlanes.poller")
        return lua.run(self._client, lua.command([self._key], (), **arguments))


class SoleLeader:
    """Without an election: for a source that nobody else reads, or a sink that checks no guard."""

    guard: Guard | None = None

    def take(self) -> None:
        pass

    def check(self) -> None:
        pass

    def resign(self) -> None:
        pass
