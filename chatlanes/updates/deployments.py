"""Detects deployments that share a database by mistake: each process announces its bots and queues while it runs.

A process refuses to start if it and a live process of other bots would receive each other's updates; of deployments
that start together, the one that announces itself first starts whole. Processes that share a bot are one deployment,
and so are those that share a key of BOTS_KEY, if one of them has added bots only. Nothing is checked while Redis is
unavailable; the conflict is then logged after Redis is back, and `lanes check` reports it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from threading import Event, Thread
from typing import Any

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import RedisError

from celery_lanes.errors import ServerUnfit
from celery_lanes.monitoring import inspection
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to

log = logging.getLogger(__name__)

#: hash: host:pid:random of a process -> its Announcement, as JSON
PROCESSES = "deployments:processes"

#: In place of a bot id: the bots that are added to this database while the deployment runs (BOTS_KEY).
ADDED_BOTS = 0
#: Before the digest of a key of BOTS_KEY. It is announced beside the queue groups, because a process of an older
#: release takes an announcement with another field for an expired one.
KEY = "key:"
#: Before a setting and its value, at the same place.
SETTING = "setting:"
#: With other values of these, processes would order the same updates in different ways, or end each other's leases.
#: QUEUES may differ while it is raised or lowered (docs/operations.md).
COMMON = ("order_by", "collect", "interrupt", "lease_seconds")

ANNOUNCE_EVERY_S = 5.0
#: A process counts as alive for this long after its last announcement: three may fail. A killed process blocks the
#: start of another deployment for this long.
ALIVE_S = 20.0
LOOK_EVERY_S = 0.5
ANSWER_WITHIN_S = 2.0
#: The most time that withdrawing takes when a process ends, even if Redis does not answer.
WITHDRAW_WITHIN_S = 0.3
LOG_EVERY_S = 60.0


class ForeignDeployment(ServerUnfit):
    """Another deployment with other bots uses the same queues in this database."""


@dataclass(frozen=True)
class Announcement:
    """The announcement of a process. `fills`: the queue groups to which its bots' updates are appended; `reads`: those
    from which it fetches, the digests of its keys (KEY), and its common settings (SETTING).
    """

    what: str
    bots: list[int]
    fills: list[str]
    reads: list[str]
    since_us: int
    seen_us: int

    def is_foreign_to(self, other: Announcement) -> bool:
        """True if one of them would receive updates of bots that it does not serve."""
        if not self.configured.isdisjoint(other.configured) or self._shares_added_bots(other):
            return False
        return not (set(self.fills).isdisjoint(other.reads) and set(self.reads).isdisjoint(other.fills))

    @property
    def configured(self) -> set[int]:
        """The bots of BOT_TOKEN or BOTS."""
        return set(self.bots) - {ADDED_BOTS}

    @property
    def _keys(self) -> set[str]:
        return {each for each in self.reads if each.startswith(KEY)}

    def _shares_added_bots(self, other: Announcement) -> bool:
        """True if both serve the same added bots, and no updates of other bots that only one of them serves."""
        if ADDED_BOTS not in self.bots or ADDED_BOTS not in other.bots or (self.configured and other.configured):
            return False
        is_older = not self._keys or not other._keys  # a release that announces no keys
        return is_older or not self._keys.isdisjoint(other._keys)


class Presence:
    """Announces this process in the database. `what`: poller, receiver or worker."""

    def __init__(self, what: str, settings: Settings) -> None:
        self._client = connect_to(settings, ANSWER_WITHIN_S)
        self._name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._what = what
        added = [] if settings.bots_key is None else [ADDED_BOTS]
        self._bots = sorted([*(bot.bot_id for bot in settings.served), *added])
        self._fills = sorted({*(bot.queue_group for bot in settings.served), *(settings.queue_group for _ in added)})
        self._reads = sorted({*self._fills, settings.queue_group, *_keys_of(settings), *_common(settings)})
        self._since_us = 0
        self._is_over = Event()

    def enter(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Announce this process. Raises ForeignDeployment.

        A foreign process counts as alive only when it announces itself again, so this waits until a killed one expires.
        A process that waits is not announced: it must not keep out a process of the deployment for which it waits.
        """
        with suppress(RedisError, OSError):
            first_seen_us = dict[str, int]()
            is_logged = False
            while foreign := self._try_to_enter():
                for name, other in foreign.items():
                    if other.seen_us > first_seen_us.setdefault(name, other.seen_us):
                        raise ForeignDeployment(sentence(name, other))
                if not is_logged:
                    log.warning(
                        "another deployment has used this database: waiting to see whether it is still running "
                        "(up to %.0f s)",
                        ALIVE_S,
                    )
                is_logged = True
                sleep(LOOK_EVERY_S)

    def stay(self) -> None:
        """Keep announcing from a thread, until `leave`. Call it after the pool has forked."""
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
        logged_s = float("-inf")
        while not self._is_over.wait(ANNOUNCE_EVERY_S):
            with suppress(RedisError, OSError):
                foreign = self._announce()
                if foreign and time.monotonic() - logged_s >= LOG_EVERY_S:
                    logged_s = time.monotonic()
                    log.error("%s", sentence(*next(iter(foreign.items()))))

    def _try_to_enter(self) -> dict[str, Announcement]:
        """The foreign processes; if there are none, this process is announced.

        Of two processes that start together only one enters: the check and the announcement are one transaction.
        """
        foreign: dict[str, Announcement] = {}

        def enter(transaction: Pipeline) -> None:
            nonlocal foreign
            foreign = self._foreign()
            transaction.multi()
            if not foreign:
                self._announce_by(transaction)

        self._client.transaction(enter, PROCESSES)
        return foreign

    def _announce(self) -> dict[str, Announcement]:
        """Announce this process; the foreign processes that were announced earlier."""
        self._announce_by(self._client)
        return {
            name: other
            for name, other in self._foreign().items()
            if (other.since_us, name) < (self._since_us, self._name)
        }

    def _announce_by(self, client: Redis) -> None:
        now_us = inspection.now_us(self._client)
        self._since_us = self._since_us or now_us
        own = Announcement(self._what, self._bots, self._fills, self._reads, self._since_us, now_us)
        client.hset(PROCESSES, self._name, json.dumps(asdict(own)))

    def _foreign(self) -> dict[str, Announcement]:
        own = Announcement(self._what, self._bots, self._fills, self._reads, 0, 0)
        return {name: other for name, other in processes(self._client).items() if other.is_foreign_to(own)}


def _keys_of(settings: Settings) -> Iterator[str]:
    """A digest of each key of BOTS_KEY. The keys are random, so a digest reveals nothing of them."""
    keys = settings.bots_key.get_secret_value().split(",") if settings.bots_key else ()
    for key in keys:
        yield KEY + hashlib.sha256(f"BOTS_KEY {key}".encode()).hexdigest()[:16]


def _common(settings: Settings) -> Iterator[str]:
    """The common settings; of the token a digest, which reveals nothing of it: it is random."""
    for field in COMMON:
        yield f"{SETTING}{field.upper()}={getattr(settings, field)}"
    if settings.bot_token is not None:
        digest = hashlib.sha256(f"BOT_TOKEN {settings.token}".encode()).hexdigest()
        yield f"{SETTING}BOT_TOKEN=one with the digest {digest[:8]}"


@contextmanager
def present(what: str, settings: Settings, run: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Announce a process that does not fork, while the context is open. Raises ForeignDeployment, and whatever `run`
    raises, which may stop waiting for the call that it makes.
    """
    presence = Presence(what, settings)
    try:
        run(presence.enter)
        presence.stay()
        yield
    finally:
        presence.leave()


def processes(client: Redis) -> dict[str, Announcement]:
    """The announcements of live processes, by host:pid:random; expired ones are deleted. Raises RedisError."""
    found: Any = client.hgetall(PROCESSES)
    now_us, alive_us = inspection.now_us(client), round(ALIVE_S * 1_000_000)
    announced = {name: _announcement(stored) for name, stored in found.items()}
    # One from the future was made before the clock of Redis was set back; a live process makes another one soon.
    alive = {
        name.decode(): each
        for name, each in sorted(announced.items())
        if each and -alive_us <= now_us - each.seen_us <= alive_us
    }
    if dead := [name for name in found if name.decode(errors="replace") not in alive]:
        client.hdel(PROCESSES, *dead)
    return alive


def _announcement(stored: bytes) -> Announcement | None:
    """None if it cannot be read."""
    try:
        read = Announcement(**json.loads(stored))
        return replace(
            read, bots=[int(bot) for bot in read.bots], since_us=int(read.since_us), seen_us=int(read.seen_us)
        )
    except (ValueError, TypeError):
        return None


def foreign(alive: dict[str, Announcement]) -> Iterator[str]:
    """One sentence for each deployment that is foreign to an older one."""
    reported = set[tuple[int, ...]]()
    oldest_first = sorted(alive.items(), key=lambda each: (each[1].since_us, each[0]))
    for place, (_, later) in enumerate(oldest_first):
        for name, earlier in oldest_first[:place]:
            if earlier.is_foreign_to(later) and tuple(later.bots) not in reported:
                reported.add(tuple(later.bots))
                yield f"of bot {_ids(later)}: {sentence(name, earlier)}"


def differing(alive: dict[str, Announcement]) -> Iterator[str]:
    """One sentence for each common setting that differs between processes of the same bots."""
    found: defaultdict[tuple[Any, str], dict[str, str]] = defaultdict(dict)
    for name, each in alive.items():
        for entry in each.reads:
            setting, _, value = entry.partition("=")
            if setting.startswith(SETTING):
                process = f"{each.what} {name.rpartition(':')[0]}"
                found[tuple(each.bots), setting.removeprefix(SETTING)].setdefault(value, process)
    for (_, setting), values in sorted(found.items()):
        if len(values) > 1:
            shown = ", ".join(f"{value} ({process})" for value, process in values.items())
            yield f"{setting} differs: {shown}. Restart the processes that do not have the value that all should have"


def sentence(name: str, other: Announcement) -> str:
    """The conflict and its remedies."""
    queues = ", ".join(f"{group}.*" for group in other.fills)
    where = name.rpartition(":")[0]
    same_key = "give all processes the same BOTS_KEY, " if ADDED_BOTS in other.bots else ""
    return (
        f"this database is in use by another deployment, of bot {_ids(other)} ({other.what} {where}), "
        f"with the same queues ({queues}): each would receive the other's updates and park them. Give this one a "
        "database of its own (REDIS_URL, such as …/1), serve both bots from one deployment (BOTS, docs/many_bots.md), "
        f"{same_key}or stop the other one"
    )


def _ids(announced: Announcement) -> str:
    return ", ".join("any that is added" if bot == ADDED_BOTS else str(bot) for bot in announced.bots)
