"""The transport option `global_keyprefix`: every key and channel of the lanes begins with it.

Guarantees that apps with different prefixes share a database and never read each other's keys, and that a command
whose keys are not known here raises ValueError instead of using one without the prefix. The prefix is added where a
command is packed, so everything above, the scripts, and the data in Redis have the names without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from redis import Redis

from celery_lanes.protocol import keys
from celery_lanes.protocol.codec import pack_command
from celery_lanes.protocol.scripts import Argument, quoted, source_of, without_comments

# Commands by the places of their keys.
_NO_KEYS = re.compile(
    "ACL|AUTH|CLIENT|COMMAND|CONFIG|DBSIZE|DISCARD|ECHO|EXEC|FLUSHALL|FLUSHDB|HELLO|INFO|MULTI|PING|QUIT|READONLY|ROLE|"
    "SELECT|SENTINEL|TIME|UNWATCH|WAIT|WAITAOF"
)
_FIRST = re.compile(
    "APPEND|DECRBY|EXPIRE|GET|GETBIT|GETRANGE|HDEL|HEXISTS|HGET|HGETALL|HINCRBY|HLEN|HMGET|HSCAN|HSET|HVALS|INCR|"
    "INCRBY|LINDEX|LLEN|LPUSH|LRANGE|LREM|PERSIST|PEXPIRE|PTTL|PUBLISH|RPUSH|SADD|SCARD|SET|SETBIT|SETRANGE|SISMEMBER|SMEMBERS|"
    "SREM|STRLEN|TTL|TYPE|ZADD|ZCARD|ZCOUNT|ZINCRBY|ZRANGE|ZRANGEBYSCORE|ZREM|ZREVRANGE|"
    "ZREVRANGEBYSCORE|ZSCAN|ZSCORE|LPOP|RPOP|LPOS|LTRIM|HSETNX|ZRANK"
)
_ALL = re.compile("DEL|EXISTS|MGET|PSUBSCRIBE|PUNSUBSCRIBE|RENAME|SUBSCRIBE|UNLINK|UNSUBSCRIBE|WATCH")
_ALL_BUT_LAST = re.compile("BLPOP|BRPOP")


class Prefix:
    """Adds a prefix to commands. For a client of redis-py it is the `command_packer` of its connections."""

    def __init__(self, text: str) -> None:
        self.text = text

    def pack(self, *command: Any) -> list[bytes]:
        """Called by redis-py, which writes `SCRIPT LOAD` as one argument."""
        return [self.packed([*str(command[0]).split(), *command[1:]])]

    def packed(self, command: Sequence[Argument]) -> bytes:
        """The command in the Redis protocol."""
        arguments: Any = tuple(self.added(command))
        return pack_command(arguments)

    def added(self, command: Sequence[Argument]) -> list[Argument]:
        """The command with the prefix before each of its keys. Raises ValueError for a command with unknown keys."""
        name, *rest = command
        if name == "EVALSHA":
            return [name, _sha(str(rest[0]), self.text), rest[1], *self._keys(rest[2:], int(rest[1]))]
        if name == "SCRIPT":
            return [name, rest[0], with_prefix(str(rest[1]), self.text)] if rest[0] == "LOAD" else [*command]
        if name == "SCAN":
            return [name, *(self._pattern(rest, at) for at in range(len(rest)))]
        places = {_NO_KEYS: 0, _FIRST: 1, _ALL: len(rest), _ALL_BUT_LAST: len(rest) - 1}
        for names, count in places.items():
            if names.fullmatch(str(name)):
                return [name, *self._keys(rest, count)]
        raise ValueError(f"{name!r} cannot be sent with a key prefix: its keys are not known (protocol/prefix.py)")

    def _keys(self, arguments: Sequence[Argument], count: int) -> list[Argument]:
        return [*map(self._key, arguments[:count]), *arguments[count:]]

    def _key(self, key: Argument) -> Argument:
        return self.text.encode() + key if isinstance(key, bytes) else f"{self.text}{key}"

    def _pattern(self, arguments: Sequence[Argument], at: int) -> Argument:
        if at == 0 or arguments[at - 1] not in ("MATCH", b"MATCH"):
            return arguments[at]
        return keys.literal(self.text) + str(arguments[at])


class PrefixedRedis(Redis):
    """A client whose connections add a prefix. The names that it finds are without it."""

    def scan_iter(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        prefix = self.connection_pool.connection_kwargs["command_packer"].text.encode()
        for key in super().scan_iter(*arguments, **options):
            yield key.removeprefix(prefix)


def with_prefix(source: str, prefix: str) -> str:
    """The source of a script that puts the prefix before its keys."""
    return f"local PREFIX = {quoted(prefix)}\n{without_comments('lib/prefix')}{source}"


@cache
def _sha(sha: str, prefix: str) -> str:
    return hashlib.sha1(with_prefix(source_of(sha), prefix).encode(), usedforsecurity=False).hexdigest()
