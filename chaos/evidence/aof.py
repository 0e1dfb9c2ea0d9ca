"""Reads Redis' append-only file: which worker held which message, with which fence and when, and which calls were
noted.

Redis logs every change of a script in order, and a fence is the time (µs) of the hand-out or take-back that made it.
The file is therefore independent of what workers and handlers claim. It is read to its last complete command. A settle
has no time in the file: it ends a hold without a take-back.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from celery_lanes.protocol import keys
from chaos.systems import agents

FOREVER = float("inf")
POLL_EVERY_S = 0.2
#: The number of an update. For a timer, an occurrence of a schedule or a recipient of a broadcast: the id of its
#: message, without that of the bot.
MessageId = int | str
_MESSAGE, _JOURNAL = keys.MESSAGE.encode(), keys.JOURNAL.encode()


@dataclass
class Hold:
    """One hand-out of a message. From `until_s` on, its fence is refused."""

    message: MessageId
    fence: str
    holder: str  # host:pid:…, of the worker's main process
    until_s: float = FOREVER

    @property
    def from_s(self) -> float:
        return int(self.fence) / 1e6

    @property
    def pid(self) -> int:
        return int(self.holder.split(":")[1])


Holds = dict[tuple[MessageId, str], Hold]


@dataclass
class Book:
    """`holds`: every hand-out, by message and fence. `noted`: message, number of the call (from 0) and fence of each
    call whose outcome was stored in Redis; a step has its place in the journal instead of a number. `interrupted`: the
    messages of which a run was interrupted or stopped. `stopped`: of each stopped message the fence of its last run, 0
    if it had none.
    """

    holds: Holds = field(default_factory=dict)
    noted: set[tuple[MessageId, int | str, str]] = field(default_factory=set)
    interrupted: set[MessageId] = field(default_factory=set)
    stopped: dict[MessageId, int] = field(default_factory=dict)


def book_of(commands: Iterable[list[bytes]]) -> Book:
    """The holds and noted calls in these commands, which must be in order."""
    book, current = Book(), dict[MessageId, Hold]()
    for name, *arguments in commands:
        if not arguments:
            continue
        key, verb = arguments[0], name.upper()
        if verb in (b"DEL", b"UNLINK"):
            for each in filter(lambda name: name.startswith(_MESSAGE), arguments):
                current.pop(_message(each, _MESSAGE), None)
        elif key.startswith(_MESSAGE):
            _moved(_message(key, _MESSAGE), _fields(verb, arguments), current, book)
            if verb == b"HINCRBY" and arguments[1] == b"interrupted":
                book.interrupted.add(_message(key, _MESSAGE))
        elif key.startswith(_JOURNAL) and verb == b"HSET":
            _noted(_message(key, _JOURNAL), _fields(verb, arguments), book)
    return book


def _moved(message: MessageId, fields: dict[bytes, bytes], current: dict[MessageId, Hold], book: Book) -> None:
    if b"stopped" in fields:
        book.stopped[message] = int(fields[b"stopped"])
    if b"fence" not in fields:
        return
    fence = fields[b"fence"].decode()
    if ended := current.pop(message, None):
        ended.until_s = int(fence) / 1e6
    if fields.get(b"state") == b"leased":
        holder = fields.get(b"holder", b"").decode()
        current[message] = book.holds[message, fence] = Hold(message, fence, holder)


def _noted(message: MessageId, fields: dict[bytes, bytes], book: Book) -> None:
    """Reads calls, steps and the confirmation of the handler: the field is the call's number, from 1, or the place; the
    value is `state fence what outcome`.
    """
    for place, value in fields.items():
        state, _, rest = value.partition(b" ")
        number = _number(place.decode())
        if state == b"done" and number is not None:
            book.noted.add((message, number, rest.partition(b" ")[0].decode()))


def _number(place: str) -> int | str | None:
    """As the history names the call at this place; None: it does not."""
    if place == agents.CONFIRMED_AT:
        return agents.CONFIRMATION
    if place.isdigit():
        return int(place) - 1
    return place if place.startswith("step/") else None


def _message(key: bytes, prefix: bytes) -> MessageId:
    name = key.removeprefix(prefix).partition(b":")[2].decode()
    return int(name) if name.isdecimal() else name


def _fields(verb: bytes, arguments: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(arguments[1::2], arguments[2::2], strict=False)) if verb == b"HSET" else {}


def commands_in(file: BinaryIO) -> Iterator[list[bytes]]:
    """Name and arguments of each command; stops where a kill truncated the file."""
    while (line := file.readline()).endswith(b"\r\n"):
        if line.startswith(b"#"):  # a timestamp
            continue
        command = []
        for _ in range(int(line[1:])):
            size = int(file.readline()[1:] or -1)
            argument = file.read(size + 2)
            if size < 0 or len(argument) < size + 2:
                return
            command.append(argument[:-2])
        yield command


def book_in(folder: Path) -> Book:
    """Reads the files that an AofCopy kept. They are numbered: appendonly.aof.7.incr.aof."""

    def commands() -> Iterator[list[bytes]]:
        for path in sorted(folder.iterdir(), key=lambda path: int(path.name.split(".")[-3])):
            with path.open("rb") as file:
                yield from commands_in(file)

    return book_of(commands())


class AofCopy(threading.Thread):
    """Keeps a hard link to every append-only file of a server, because the server removes files that it has rewritten.

    The server must be running. A file exists from one rewrite to the next, much longer than the polling interval.
    """

    def __init__(self, server: Path, folder: Path) -> None:
        super().__init__(name="aof copy", daemon=True)
        self._server = server
        self._folder = folder
        self._ended = threading.Event()
        folder.mkdir(exist_ok=True)
        self._keep()

    def run(self) -> None:
        while not self._ended.wait(POLL_EVERY_S):
            self._keep()

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._keep()

    def _keep(self) -> None:
        for file in self._server.glob("appendonlydir/*.incr.aof"):
            kept = self._folder / file.name
            if not kept.exists():
                with contextlib.suppress(FileNotFoundError):
                    os.link(file, kept)
