"""Records what a server executes: MONITOR, and a snapshot of the lanes at a known place in it.

A connection that is cut, or a server that dies, ends a segment; the next one begins with a snapshot of its own. What
the server does in between is not seen.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

HOST = "127.0.0.1"
MARK, END = "spec:snapshot", "spec:end"
AGAIN_AFTER_S = 0.02
TIMEOUT_S = 0.2

#: Returns name, type and content of each key that the specification knows, and of each list of ready messages.
SNAPSHOT = """
local found, queues = {}, {}
local function add(key, kind, value) found[#found + 1] = { key, kind, value } end
for _, key in ipairs(redis.call('KEYS', 'lanes:*')) do
  local kind = redis.call('TYPE', key).ok
  if key == 'lanes:paused' then
    add(key, kind, redis.call('HGETALL', key))
  elseif kind == 'hash' and string.find(key, '^lanes:message:') then
    add(key, kind, redis.call('HGETALL', key))
    queues[redis.call('HGET', key, 'queue') or ''] = true
  elseif kind == 'zset' then
    add(key, kind, redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'))
  elseif string.find(key, '^lanes:seen:') then
    add(key, kind, { redis.call('GET', key) })
  end
end
for queue in pairs(queues) do add(queue, 'list', redis.call('LRANGE', queue, 0, -1)) end
return found
"""

_LINE = re.compile(rb"^\+?(\d+\.\d+) \[\d+ ([^\]]*)\] (.*)$")
_ARGUMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


@dataclass
class Call:
    """A command of a client; `inner`: the commands that it ran, if it is a script. Texts are bytes as latin-1."""

    at_s: float
    arguments: list[str]
    inner: list[list[str]] = field(default_factory=list)

    @property
    def verb(self) -> str:
        return self.arguments[0].upper()


class Recorder(threading.Thread):
    """Records the server at this port into numbered files of a folder until `end`. What is called after `started` is
    set is recorded.
    """

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(name="monitor", daemon=True)
        self._port, self._folder = port, folder
        self._ended, self.started = threading.Event(), threading.Event()
        folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        segment = 0
        while not self._ended.is_set():
            with suppress(OSError, RedisError), socket.create_connection((HOST, self._port), TIMEOUT_S) as connection:
                connection.sendall(b"MONITOR\r\n")
                if connection.recv(5) == b"+OK\r\n":
                    segment += 1
                    self._record(connection, segment)
            self._ended.wait(AGAIN_AFTER_S)

    def end(self) -> None:
        self._ended.set()
        self.join()

    def _record(self, connection: socket.socket, segment: int) -> None:
        with Redis(HOST, self._port, socket_timeout=30.0) as client:
            found = client.execute_command("EVAL", SNAPSHOT, 0, MARK)
        (self._folder / f"{segment:04}.snapshot").write_text(json.dumps(_texts(found)))
        self.started.set()
        with (self._folder / f"{segment:04}.monitor").open("wb") as file:
            is_asked, tail = False, b""
            while END.encode() not in tail:
                if self._ended.is_set() and not is_asked:
                    is_asked = True
                    with Redis(HOST, self._port, socket_timeout=30.0) as client:
                        client.echo(END)
                try:
                    received = connection.recv(1 << 16)
                except TimeoutError:  # nothing happens, or the server is frozen
                    continue
                if not received:
                    return
                file.write(received)
                tail = tail[-len(END) :] + received


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(each) for each in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def calls_in(path: Path) -> Iterator[Call]:
    """The calls of a segment after its snapshot, except the last one, which may not be complete."""
    last, is_marked = None, False
    with path.open("rb") as file:
        for found in map(_whole, file):
            if found is None:
                continue
            if found[2] == b"lua" and last is not None:
                last.inner.append(_arguments(found))
                continue
            if is_marked and last is not None:
                yield last
            is_marked = is_marked or (last is not None and MARK in last.arguments)
            last = Call(float(found[1]), _arguments(found))


def loads_in(path: Path) -> Iterator[Call]:
    """The calls of a segment that load scripts, also those before its snapshot."""
    with path.open("rb") as file:
        for found in map(_whole, (line for line in file if b'"SCRIPT" "LOAD"' in line)):
            if found is not None:
                yield Call(float(found[1]), _arguments(found))


def _whole(line: bytes) -> re.Match[bytes] | None:
    return _LINE.match(line.rstrip(b"\r\n")) if line.endswith(b"\r\n") else None


def _arguments(found: re.Match[bytes]) -> list[str]:
    return [_plain(each) for each in _ARGUMENT.findall(found[3])]


def _plain(escaped: bytes) -> str:
    def one(found: re.Match[bytes]) -> bytes:
        text = found[1]
        return bytes([int(text[1:], 16)]) if len(text) == 3 else _ESCAPED.get(text, text)

    return _ESCAPE.sub(one, escaped).decode("latin-1")
