"""What must be true of a Redis server before it may carry lanes, and how durable its writes are.

Promises a plain sentence for each thing that is not as it should be. Where a managed server hides its configuration
(CONFIG is forbidden), it says what it could not see instead of guessing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from chatlanes.lanes.errors import ServerUnfit
from chatlanes.lanes.protocol.waitaof import doubt

#: LPOS and ZRANGE … are older; COPY, GETDEL and the replication of script effects alone came with 6.2.
OLDEST = (6, 2)
#: WAITAOF (redis.io/commands/waitaof).
HAS_WAITAOF = (7, 2)

_HIDDEN = "unknown, because CONFIG is forbidden"


class Durable(Enum):
    """How a write becomes durable before it is confirmed to anyone."""

    ALWAYS = "always"  # each write is fsynced before its answer
    WAITAOF = "waitaof"  # we wait for the fsync, on a server that was tried
    NOT = "not"  # nothing waits: a crash loses the last writes


@dataclass(frozen=True)
class Durability:
    """What `how` is, in one line for the log (str)."""

    how: Durable
    sentence: str

    @property
    def safe(self) -> bool:
        return self.how is not Durable.NOT

    def __str__(self) -> str:
        return self.sentence


def check_server(client: Redis) -> tuple[int, ...]:
    """The server's version, empty when it hides that. Raises ServerUnfit when it is too old or a cluster."""
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
    """A sentence for each thing that should be otherwise; of how durable it is, `durability` tells.

    `replicas` is how many of them appends wait for.
    """
    info: dict[str, Any] = client.info()
    told = []
    if not _version(info):
        told.append("Redis does not say its version: lanes need 6.2 or newer, or Valkey")
    if info.get("role") == "slave":
        told.append("this Redis is a replica, which takes no writes: connect to its master, or through Sentinel")
    if info.get("connected_slaves", replicas) < replicas:
        told.append(
            f"Redis has {info['connected_slaves']} replicas, and DURABLE_REPLICAS asks for {replicas}: until it has as "
            "many, no update is confirmed to Telegram"
        )
    policy = info.get("maxmemory_policy") or _config(client, "maxmemory-policy")
    if policy is None:
        told.append(
            "Redis does not show what it does when it is full (CONFIG is forbidden): make sure that maxmemory-policy "
            "is noeviction"
        )
    elif policy != "noeviction":
        told.append(_eviction(policy, int(info.get("maxmemory") or 0)))
    return told


def _eviction(policy: str, maxmemory: int) -> str:
    when = f"is full ({maxmemory:,} bytes)" if maxmemory else "has a maxmemory and is full"
    # Only what was seen expires, all else is kept.
    what = (
        "forgets which updates it has seen" if policy.startswith("volatile-") else "throws updates away: they are LOST"
    )
    return f"Redis {what} when it {when}, because maxmemory-policy is {policy}. Set `maxmemory-policy noeviction`"


def durability(client: Redis) -> Durability:
    """How this server keeps what it was told. Takes 4 s for the first who asks a server whose WAITAOF waits.

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
    if fsync == "no":  # nobody asks the disk, so that WAITAOF would wait for nothing
        return Durability(
            Durable.NOT,
            "Redis leaves it to the operating system when to write to disk (appendfsync no): if the machine dies, the "
            "last updates are LOST. Set `appendfsync always`",
        )
    why = doubt(client) if _version(info) >= HAS_WAITAOF else "it is too old for WAITAOF"
    if why:
        return Durability(
            Durable.NOT,
            f"Redis may LOSE the last two seconds of updates if its machine dies (appendfsync {fsync or _HIDDEN}, and "
            f"{why}). Set `appendfsync always`",
        )
    return Durability(
        Durable.WAITAOF,
        f"Redis is durable: each batch waits until it is on disk (WAITAOF, tried; appendfsync {fsync or _HIDDEN})",
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
    # Valkey says redis_version 7.2.4 for compatibility, and its own beside it.
    text = str(info.get("valkey_version") or info.get("redis_version") or "")
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _config(client: Redis, name: str) -> str | None:
    try:
        return client.config_get(name).get(name)
    except ResponseError:
        return None
