"""Checks that a Redis server is fit for lanes, and finds out how durable its writes are.

Guarantees one sentence for each problem. If a managed server hides its configuration (CONFIG is forbidden), the
sentence names the unknown setting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from chatlanes.lanes.errors import ServerUnfit
from chatlanes.lanes.protocol.waitaof import waitaof_fault

#: LPOS and ZRANGE … are older; COPY, GETDEL and the replication of script effects alone came with 6.2.
OLDEST = (6, 2)
#: WAITAOF (redis.io/commands/waitaof).
HAS_WAITAOF = (7, 2)

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
    """The version of the server; empty if hidden. Raises ServerUnfit if it is too old or a cluster."""
    info: dict[str, Any] = client.info()
    version = _version(info)
    if version and version < OLDEST:
        raise ServerUnfit(f"Redis {info['redis_version']} is too old for lanes: use 6.2 or newer, or Valkey")
    if info.get("cluster_enabled"):
        raise ServerUnfit(
            "this Redis runs in cluster mode, which lanes do not support: use a single server or Sentinel"
        )
    return version


def advice(client: Redis, replicas: int = 0) -> list[str]:
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
            f"Redis has {info['connected_slaves']} replicas, and DURABLE_REPLICAS requires {replicas}: until it has "
            "that many, no update is confirmed to Telegram"
        )
    policy = info.get("maxmemory_policy") or _config(client, "maxmemory-policy")
    if policy is None:
        problems.append(
            "Redis hides what it does when it is full (CONFIG is forbidden): make sure that maxmemory-policy "
            "is noeviction"
        )
    elif policy != "noeviction":
        problems.append(_eviction(policy, int(info.get("maxmemory") or 0)))
    return problems


def _eviction(policy: str, maxmemory: int) -> str:
    when = f"is full ({maxmemory:,} bytes)" if maxmemory else "has a maxmemory and is full"
    # Only the bitmaps of seen numbers have an expiry.
    what = "forgets which updates it has seen" if policy.startswith("volatile-") else "deletes updates: they are LOST"
    return f"Redis {what} when it {when}, because maxmemory-policy is {policy}. Set `maxmemory-policy noeviction`"


def durability(client: Redis) -> Durability:
    """How durable the writes of this server are. The first call for a server whose WAITAOF waits takes 4 s.

    Raises RedisError.
    """
    info: dict[str, Any] = client.info()
    if not info.get("aof_enabled"):
        return Durability(
            Durable.NOT,
            "Redis keeps no append-only file: if it dies, the updates it held are LOST. "
            "Set `appendonly yes` and `appendfsync always`",
        )
    fsync = _config(client, "appendfsync")
    if fsync == "always":
        return _always(client)
    if fsync == "no":  # Redis never calls fsync, so WAITAOF would wait for nothing
        return Durability(
            Durable.NOT,
            "Redis lets the operating system decide when to write to disk (appendfsync no): if the machine dies, the "
            "last updates are LOST. Set `appendfsync always`",
        )
    why = waitaof_fault(client) if _version(info) >= HAS_WAITAOF else "it is too old for WAITAOF"
    if why:
        return Durability(
            Durable.NOT,
            f"Redis may LOSE the last two seconds of updates if its machine dies (appendfsync {fsync or _HIDDEN}, and "
            f"{why}). Set `appendfsync always`",
        )
    return Durability(
        Durable.WAITAOF,
        f"Redis is durable: each batch waits until it is on disk (WAITAOF, tested; appendfsync {fsync or _HIDDEN})",
    )


def _always(client: Redis) -> Durability:
    if _config(client, "no-appendfsync-on-rewrite") == "yes":
        return Durability(
            Durable.NOT,
            "Redis does not fsync while it rewrites its files (no-appendfsync-on-rewrite yes): if the machine dies "
            "then, the updates of that time are LOST. Set `no-appendfsync-on-rewrite no`",
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
