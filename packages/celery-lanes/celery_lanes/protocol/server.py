"""Checks that a Redis server is fit for lanes, with one sentence for each problem, and how durable its writes are.

Several servers answer WAITAOF before they fsync (docs/redis.md), so it is tested, for 4 s after each start of a server.
Guarantees that a server passes only if each of several writes waited as long as it must on a server that syncs once a
second. Does not guarantee that every server that waits passes: a slow network or disk may prevent it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from celery_lanes.errors import ServerUnfit
from celery_lanes.protocol.client import Store
from celery_lanes.words import NEUTRAL, Words

#: LPOS and ZRANGE … are older; COPY, GETDEL and the replication of script effects alone came with 6.2.
OLDEST = (6, 2)
#: WAITAOF (redis.io/commands/waitaof).
HAS_WAITAOF = (7, 2)

#: Enough for everything that uses lanes, except waiting for replicas.
RIGHTS = "~* &* +@read +@write +@scripting +@connection +@transaction +@pubsub +time +info +config|get"

IS_CLUSTER = "this Redis runs in cluster mode, which lanes do not support: use a single server or Sentinel"

#: string: run id of a server, a blank, and why it failed the test; nothing follows if its WAITAOF waits. A copy on a
#: replica, or after a restart, has the run id of another server.
WAITAOF_KEY = "server:waitaof"

#: Two fsyncs of `everysec` begin a second apart, so a write that follows the end of one waits for the next.
LONG_S = 0.3
#: A server that waits fails two trials: one because it was idle, one before the end of the second in which it syncs. On
#: a busy machine others fail too; each needs one more proof. A server that does not wait fails within milliseconds, or
#: every other time if an fsync takes a second: it never has four proofs more than such failures.
PROOFS, EXPECTED_FAILURES, FAILURES = 4, 2, 5
#: Longer than any wait on a healthy disk, shorter than the timeouts of the callers.
ANSWER_WITHIN_MS = 2_500
#: Lifetime of a negative result, whose reason may pass, and of the value that an interrupted trial leaves.
FAILED_MS = 600_000

_HIDDEN = "unknown, because CONFIG is forbidden"


class Durable(Enum):
    """How a write becomes durable before it is confirmed."""

    ALWAYS = "always"  # each write is fsynced before its answer
    WAITAOF = "waitaof"  # appends wait for the fsync, on a server that passed the test
    NOT = "not"  # appends do not wait: a crash loses the last writes


@dataclass(frozen=True)
class Durability:
    """How writes become durable. `str()` is a sentence for the log."""

    how: Durable
    sentence: str

    @property
    def safe(self) -> bool:
        return self.how is not Durable.NOT

    def __str__(self) -> str:
        return self.sentence


def check_server(client: Redis) -> tuple[int, ...]:
    """The version of the server; empty if hidden. Raises ServerUnfit if it is too old or a cluster, or refuses INFO."""
    try:
        info: dict[str, Any] = client.info()
    except NoPermissionError as error:
        raise _refused(str(error)) from None
    version = _version(info)
    if version and version < OLDEST:
        raise ServerUnfit(f"Redis {info['redis_version']} is too old for lanes: use 6.2 or newer, or Valkey")
    if info.get("cluster_enabled"):
        raise ServerUnfit(IS_CLUSTER)
    return version


def check_rights(store: Store) -> None:
    """Raises ServerUnfit if this user may not use a command of the scripts: Redis would end a script in its middle."""
    try:
        refused = store.rights()
    except NoPermissionError as error:
        raise _refused(str(error)) from None
    if refused:
        raise _refused(", ".join(refused))


def _refused(what: str) -> ServerUnfit:
    return ServerUnfit(
        f"Redis refuses commands that lanes need: {what}. Give this user the rights for them: ACL SETUSER NAME {RIGHTS}"
    )


def advice(client: Redis, replicas: int = 0, words: Words = NEUTRAL) -> list[str]:
    """A sentence for each problem of the server, except for its durability (see `durability`).

    `replicas` is how many replicas appends wait for.
    """
    info: dict[str, Any] = client.info()
    problems = []
    if not _version(info):
        problems.append("Redis hides its version: lanes need 6.2 or newer, or Valkey")
    if info.get("role") == "slave":
        problems.append("this Redis is a replica, which accepts no writes: connect to its master, or through Sentinel")
    if info.get("connected_slaves", replicas) < replicas:
        problems.append(
            f"Redis has {info['connected_slaves']} replicas, and {words.replicas} requires {replicas}: until it has "
            f"that many, no {words.message} is {words.confirmed}"
        )
    policy = info.get("maxmemory_policy") or _config(client, "maxmemory-policy")
    if policy is None:
        problems.append(
            "Redis hides what it does when it is full (CONFIG is forbidden): make sure that maxmemory-policy "
            "is noeviction"
        )
    elif policy != "noeviction":
        problems.append(_eviction(policy, int(info.get("maxmemory") or 0), words))
    return problems


def _eviction(policy: str, maxmemory: int, words: Words) -> str:
    when = f"is full ({maxmemory:,} bytes)" if maxmemory else "has a maxmemory and is full"
    # Only the bitmaps of seen numbers have an expiry.
    forgets = policy.startswith("volatile-")
    what = f"forgets which {words.message}s it has seen" if forgets else f"deletes {words.message}s: they are LOST"
    return f"Redis {what} when it {when}, because maxmemory-policy is {policy}. Set `maxmemory-policy noeviction`"


def durability(client: Redis, words: Words = NEUTRAL) -> Durability:
    """How durable the writes of this server are. The first call for a server whose WAITAOF waits takes 4 s.

    Raises RedisError.
    """
    info: dict[str, Any] = client.info()
    if not info.get("aof_enabled"):
        return Durability(
            Durable.NOT,
            f"Redis keeps no append-only file: if it dies, the {words.message}s it held are LOST. "
            "Set `appendonly yes` and `appendfsync always`",
        )
    fsync = _config(client, "appendfsync")
    if fsync == "always":
        return _always(client, words)
    if fsync == "no":  # Redis never calls fsync, so WAITAOF would wait for nothing
        return Durability(
            Durable.NOT,
            "Redis lets the operating system decide when to write to disk (appendfsync no): if the machine dies, the "
            f"last {words.message}s are LOST. Set `appendfsync always`",
        )
    why = waitaof_fault(client) if _version(info) >= HAS_WAITAOF else "it is too old for WAITAOF"
    if why:
        return Durability(
            Durable.NOT,
            f"Redis may LOSE the last two seconds of {words.message}s if its machine dies (appendfsync "
            f"{fsync or _HIDDEN}, and {why}). Set `appendfsync always`",
        )
    return Durability(
        Durable.WAITAOF,
        f"Redis is durable: each batch waits until it is on disk (WAITAOF, tested; appendfsync {fsync or _HIDDEN})",
    )


def _always(client: Redis, words: Words) -> Durability:
    if _config(client, "no-appendfsync-on-rewrite") == "yes":
        return Durability(
            Durable.NOT,
            "Redis does not fsync while it rewrites its files (no-appendfsync-on-rewrite yes): if the machine dies "
            f"then, the {words.message}s of that time are LOST. Set `no-appendfsync-on-rewrite no`",
        )
    return Durability(Durable.ALWAYS, "Redis is durable: every write is on disk before it answers (fsync always)")


def _version(info: dict[str, Any]) -> tuple[int, ...]:
    # Valkey reports redis_version 7.2.4 for compatibility, and its own version in valkey_version.
    text = str(info.get("valkey_version") or info.get("redis_version") or "")
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _config(client: Redis, name: str) -> str | None:
    try:
        return client.config_get(name).get(name)
    except ResponseError:
        return None


class Trial(NamedTuple):
    """One write, followed by WAITAOF."""

    write_s: float
    wait_s: float
    is_answered: bool
    #: Right after the answer of WAITAOF.
    is_fsync_under_way: bool

    @property
    def is_proof(self) -> bool:
        """True if the wait was longer than a plain round trip, and nothing is left to sync.

        While an fsync takes more than a second, servers delay the next write. So a server that does not wait for the
        fsync of that write answers late too, but as soon as that fsync begins.
        """
        return self.wait_s - self.write_s >= LONG_S and not self.is_fsync_under_way


def waitaof_fault(client: Redis) -> str:
    """Why WAITAOF of this server proves nothing; empty if it waits for the disk. Raises RedisError."""
    try:
        with client.client() as connection:  # WAITAOF refers to the writes of its own connection
            return _stored_fault(connection)
    except ResponseError as error:  # a replica, a full server, or a user without permission
        return f"its WAITAOF could not be tested ({error})"


def _stored_fault(connection: Redis) -> str:
    info: dict[str, Any] = connection.info("server")
    run_id = str(info.get("run_id", ""))
    known: Any = connection.get(WAITAOF_KEY) or b""
    found_of, _, found = known.decode().partition(" ")
    if run_id and found_of == run_id:
        return str(found)
    why = _test(connection)
    connection.set(WAITAOF_KEY, f"{run_id} {why}", px=FAILED_MS if why else None)
    return why


def _test(connection: Redis) -> str:
    proofs = failures = 0
    while proofs - max(failures - EXPECTED_FAILURES, 0) < PROOFS:
        trial = _try(connection)
        if not trial.is_answered:
            return f"its WAITAOF does not answer within {ANSWER_WITHIN_MS / 1000:g} s"
        proofs, failures = proofs + trial.is_proof, failures + (not trial.is_proof)
        if failures == FAILURES:
            return "its WAITAOF answers too soon to have waited for the disk"
    return ""


def _try(connection: Redis) -> Trial:
    began_s = time.monotonic()
    connection.set(WAITAOF_KEY, "", px=FAILED_MS)
    written_s = time.monotonic()
    local, _ = connection.execute_command("WAITAOF", 1, 0, ANSWER_WITHIN_MS)
    waited_s = time.monotonic()
    persistence: dict[str, Any] = connection.info("persistence")
    pending = persistence.get("aof_pending_bio_fsync", "unknown")
    return Trial(written_s - began_s, waited_s - written_s, bool(local), bool(pending))
