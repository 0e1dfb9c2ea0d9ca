"""Leader election: one of all pollers of a bot fetches updates, the others stand by and take over.

Guarantees that a poller whose lease expired asks Redis who leads before it fetches, and that a batch of an old leader
is not appended once another one leads: every append checks the fence. Does not guarantee that only one poller fetches
at any moment: a process that is frozen between its last check of the clock and its request sends that request late.
Telegram then ends the long poll of the new leader with a 409, and the new leader polls again.

Why the append checks the fence, although updates that were seen are dropped: a poller confirms only what it has
appended, and Telegram sends the oldest unconfirmed updates first. So every batch begins no later than the first update
that was not in its lanes when the batch was fetched. If the batch is appended late, after batches of a new leader, its
updates were seen or are the next ones. There are two exceptions, for an old leader that was frozen with a batch:

* Telegram forgets some unconfirmed updates soon (an inline query after 30 s, a callback query after 150 s). The new
  leader never gets them and appends newer updates of the same chat. The old leader would append them behind those.
* Redis forgets the numbers that it has seen after 48 h. Then the whole batch would run again, behind newer updates.

The fence makes Redis refuse such a batch. Nothing is lost: the batch was never confirmed, so the new leader gets the
updates that Telegram still has. A late confirm needs no fence, because it covers only updates that were appended with
a valid fence.
"""

import logging
import os
import socket
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.errors import LeaseLost
from celery_lanes.protocol import Argument, Guard, Store, Witness, script
from celery_lanes.runtime import clock
from chatlanes.poller.runtime import Retry, Stop, Stopping

log = logging.getLogger("poller")

#: hash: fence (of the last poller that took the lead), holder (host:pid, for people), until_ms (TIME of Redis)
LEADER = "poller:%s:leader"
#: In place of a bot id: one poller leads for all bots that were added while it runs.
ADDED_BOTS = "added"

#: A standby polls within 10 s after the leader died, with some time left for a slow machine. A leader loses the lead if
#: it is paused for 4 s or more; the only cost is a change of leaders.
LEASE_S = 6.0
LEASE_MS = round(LEASE_S * 1000)
#: Two renewals may fail. They run on a thread, because the poller makes calls that last longer than a lease: a long
#: poll of 50 s, a `retry_after` of minutes. Shorter polls would need 25 times the requests, and not help with that.
RENEW_EVERY_S = 2.0
#: A call times out after this, so that another attempt fits into the lease.
ANSWER_WITHIN_S = 2.0
#: How often a standby tries to take the lead, which writes nothing in Redis while another poller leads.
TAKE_EVERY_S = 0.5
#: While no updates arrive, only this check detects that Redis lost data.
CHECK_DATA_EVERY_S = 10.0
#: How long the poller waits after the stop request until it has resigned, which is its last call.
RESIGN_GRACE_S = 1.2


class LeaderElection:
    """One process in the election for one bot, or for all added bots, whose threads take the lead one after the other.
    `client` must time out after ANSWER_WITHIN_S.
    """

    def __init__(
        self, client: Redis, bot_id: int | str, redis_retry: Retry, stop: Stop, witness: Witness | None = None
    ) -> None:
        self._store = Store(client)
        self._witness = witness or Witness()
        self._check_data_at_s = float("-inf")
        self._key = LEADER % bot_id
        self._with_redis = redis_retry
        self._stop = stop
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        #: The guard of our appends, from the lead that was taken last.
        self.guard: Guard | None = None
        self._fence = ""  # of our lead; empty while we stand by
        self._until_s = float("-inf")  # clock.now_s; no other poller leads before
        self._logged_leader = ""
        self._taking = Lock()
        self._is_over = Event()
        self._renewing = Thread(target=self._renew_until_over, name="lead", daemon=True)

    def take(self) -> None:
        """Waits until this process leads. Raises Stopping.

        If the guard is the same as before, no other poller has led since, even if our lease had expired.
        """
        with self._taking:
            while True:
                fence, leader = self._with_redis.call(self._try_to_take)
                if fence:
                    self._become_leader(fence)
                    return
                self._stand_by(leader)
                self._stop.sleep(TAKE_EVERY_S)

    def check(self) -> None:
        """Checks the clock, not Redis. Raises LeaseLost if another poller may lead now; `take` finds out."""
        if clock.now_s() >= self._until_s:
            raise LeaseLost("the lease of the leader has expired")

    def resign(self) -> None:
        """Gives up the lead, so that another poller can take over at once. The last call of every poller."""
        self._is_over.set()
        if not self._fence:
            return
        try:
            # A renewal or an append that is still in progress is refused afterwards, because its fence is gone.
            self._stop.run(lambda: self._run("resign", fence=self._fence), RESIGN_GRACE_S)
        except (RedisError, Stopping) as error:
            why = str(error) or "Redis did not answer in time"
            log.info("the next poller must wait until the lease of this one expires: %s", why)

    def _try_to_take(self) -> tuple[str, str]:
        sent_s = clock.now_s()
        answer = self._run("take", fence=self._fence, holder=self._holder, lease_ms=LEASE_MS)
        fence, leader = (each.decode() for each in answer)
        # Measured before the request, so our lease ends no later than in Redis.
        self._until_s = sent_s + LEASE_S if fence else float("-inf")
        return fence, leader

    def _become_leader(self, fence: str) -> None:
        if fence != self._fence:
            self._log_if_lost()
            log.info("leading")
        self._fence, self._logged_leader = fence, ""
        self.guard = Guard(self._key, fence)
        if not self._renewing.is_alive():
            self._renewing.start()

    def _stand_by(self, leader: str) -> None:
        self._log_if_lost()
        if leader != self._logged_leader:
            log.info("standing by: %s leads", leader)
        self._fence, self._logged_leader = "", leader

    def _log_if_lost(self) -> None:
        if self._fence:
            log.warning("lost the lead")

    def _renew_until_over(self) -> None:
        while not self._is_over.wait(RENEW_EVERY_S):
            with suppress(RedisError):  # the calls of the poller log it, and without Redis it appends nothing
                self._renew(self._fence)
                self._check_data()

    def _renew(self, fence: str) -> None:
        """Only extends a lease: the lead must not change unnoticed while a batch is in flight."""
        if not fence:
            return
        sent_s = clock.now_s()
        is_ours = self._run("renew", fence=fence, lease_ms=LEASE_MS)
        if fence == self._fence:  # otherwise the request was about an earlier lead
            self._until_s = sent_s + LEASE_S if is_ours else float("-inf")

    def _check_data(self) -> None:
        if clock.now_s() >= self._check_data_at_s:
            self._check_data_at_s = clock.now_s() + CHECK_DATA_EVERY_S
            self._witness.look(self._store)

    def _run(self, verb: str, **arguments: Argument) -> Any:
        return self._store.run(script(verb, "chatlanes.poller").command([self._key], (), **arguments))
