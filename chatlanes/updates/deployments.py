"""Which deployments use a database: each process announces its bots and queues there for as long as it runs.

Promises that a process refuses to start beside a live process of other bots that would be handed its updates, or whose
updates it would be handed. Processes that have a bot in common are one deployment, whose settings may be changing.
Does not look while Redis is away; then the conflict is logged when it is back, and `lanes check` reports it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from threading import Event, Thread
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from chatlanes.lanes.errors import ServerUnfit
from chatlanes.lanes.monitoring import inspection
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to

log = logging.getLogger(__name__)

#: hash: host:pid:random of a process -> its Announcement, as JSON
PROCESSES = "deployments:processes"

ANNOUNCE_EVERY_S = 5.0
#: Three announcements may fail. A killed process holds up another deployment for this long.
ALIVE_S = 20.0
LOOK_EVERY_S = 0.5
ANSWER_WITHIN_S = 2.0
#: At the end of a process, whatever Redis does.
WITHDRAW_WITHIN_S = 0.5
SAY_EVERY_S = 60.0


class ForeignDeployment(ServerUnfit):
    """Another deployment, of other bots, uses the same queues of this database."""


@dataclass(frozen=True)
class Announcement:
    """`fills`: the groups of queues that its bots' updates go into; `reads`: those that it takes updates from."""

    what: str
    bots: list[int]
    fills: list[str]
    reads: list[str]
    since_us: int
    seen_us: int

    def is_foreign_to(self, other: Announcement) -> bool:
        """Whether one of them would be handed updates of bots that it does not know."""
        if not set(self.bots).isdisjoint(other.bots):
            return False
        return not (set(self.fills).isdisjoint(other.reads) and set(self.reads).isdisjoint(other.fills))


class Presence:
    """This process among all that use the database. `what` it is: poller, receiver, worker."""

    def __init__(self, what: str, settings: Settings) -> None:
        self._client = connect_to(settings, ANSWER_WITHIN_S)
        self._name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._what = what
        self._bots = sorted(bot.bot_id for bot in settings.served)
        self._fills = sorted({bot.queue_group for bot in settings.served})
        self._reads = sorted({*self._fills, settings.queue_group})
        self._since_us = 0
        self._is_over = Event()

    def enter(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises ForeignDeployment. One that was killed is waited out: only what is announced again is alive."""
        with suppress(RedisError, OSError):
            first_seen_us = dict[str, int]()
            is_said = False
            while foreign := self._announce():
                for name, other in foreign.items():
                    if other.seen_us > first_seen_us.setdefault(name, other.seen_us):
                        self._client.hdel(PROCESSES, self._name)
                        raise ForeignDeployment(sentence(name, other))
                if not is_said:
                    log.warning("another deployment has used this database: waiting until it counts as gone")
                is_said = True
                sleep(LOOK_EVERY_S)

    def stay(self) -> None:
        """Announce it from a thread, until `leave`. Not before a pool has forked."""
        Thread(target=self._stay, name="presence", daemon=True).start()

    def leave(self) -> None:
        self._is_over.set()
        withdrawing = Thread(target=self._withdraw, name="presence", daemon=True)
        withdrawing.start()
        withdrawing.join(WITHDRAW_WITHIN_S)

    def _withdraw(self) -> None:
        with suppress(RedisError, OSError):
            self._client.hdel(PROCESSES, self._name)

    def _stay(self) -> None:
        said_s = float("-inf")
        while not self._is_over.wait(ANNOUNCE_EVERY_S):
            with suppress(RedisError, OSError):
                foreign = self._announce()
                if foreign and time.monotonic() - said_s >= SAY_EVERY_S:
                    said_s = time.monotonic()
                    log.error("%s", sentence(*next(iter(foreign.items()))))

    def _announce(self) -> dict[str, Announcement]:
        """The foreign processes that were there before. Of two that start together, each sees the other."""
        now_us = inspection.now_us(self._client)
        self._since_us = self._since_us or now_us
        own = Announcement(self._what, self._bots, self._fills, self._reads, self._since_us, now_us)
        self._client.hset(PROCESSES, self._name, json.dumps(asdict(own)))
        others = processes(self._client)
        return {
            name: other
            for name, other in others.items()
            if other.is_foreign_to(own) and (other.since_us, name) < (own.since_us, self._name)
        }


@contextmanager
def present(what: str, settings: Settings, sleep: Callable[[float], None]) -> Iterator[None]:
    """Of a process that does not fork. Raises ForeignDeployment, and what `sleep` raises."""
    presence = Presence(what, settings)
    try:
        presence.enter(sleep)
        presence.stay()
        yield
    finally:
        presence.leave()


def processes(client: Redis) -> dict[str, Announcement]:
    """host:pid:random -> what it announced; of those that are alive. Raises RedisError."""
    since_us = inspection.now_us(client) - round(ALIVE_S * 1_000_000)
    found: Any = client.hgetall(PROCESSES)
    all_of_them = {name.decode(): Announcement(**json.loads(said)) for name, said in found.items()}
    dead = [name for name, said in all_of_them.items() if said.seen_us < since_us]
    if dead:
        client.hdel(PROCESSES, *dead)
    return {name: said for name, said in sorted(all_of_them.items()) if name not in dead}


def foreign(alive: dict[str, Announcement]) -> Iterator[str]:
    """A sentence for each deployment that is foreign to an older one."""
    told = set[tuple[int, ...]]()
    oldest_first = sorted(alive.items(), key=lambda each: (each[1].since_us, each[0]))
    for place, (_, later) in enumerate(oldest_first):
        for name, earlier in oldest_first[:place]:
            if earlier.is_foreign_to(later) and tuple(later.bots) not in told:
                told.add(tuple(later.bots))
                yield f"of bot {_ids(later)}: {sentence(name, earlier)}"


def sentence(name: str, other: Announcement) -> str:
    """What is wrong, and the remedies."""
    queues = ", ".join(f"{group}.*" for group in other.fills)
    where = name.rpartition(":")[0]
    return (
        f"this database is in use by another deployment, of bot {_ids(other)} ({other.what} {where}), "
        f"with the same queues ({queues}): each would be handed the other's updates and put them off. Give this one a "
        "database of its own (REDIS_URL, such as …/1), serve both bots from one deployment (BOTS, docs/many_bots.md), "
        "or stop the other one"
    )


def _ids(said: Announcement) -> str:
    return ", ".join(map(str, said.bots))
