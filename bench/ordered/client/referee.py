"""The handler and the loop of the producer, the same for every system in Python. Needs the standard library only.

The handler appends `B`, `E` (done) or `F` (failed), the key, the number and CLOCK_MONOTONIC to a file of its process.
The producer publishes the messages of a key one after the other, each once the one before is acknowledged. Its clock
starts when each publisher has a connection: each publishes a message first that the judge leaves out.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from typing import TextIO
from zlib import crc32

#: Publishers beside each other; a key always has the same one.
PUBLISHERS = 8
SLOTS = int(os.environ.get("REFEREE_SLOTS", "16"))
LEASE_S = int(os.environ.get("REFEREE_LEASE_S", "15"))
URL = os.environ.get("REFEREE_URL", "")
#: How often a message that fails is tried, and the wait between two tries.
ATTEMPTS, RETRY_AFTER_S = 3, 0.2

Line = tuple[int, str, int, int, int]
Publish = Callable[[str, int, int, int], object]


class PlannedFailureError(Exception):
    """The row wants this message to fail."""


def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    write("B", key, number)
    if work_ms:
        time.sleep(work_ms / 1000)
    _end(key, number, fails)


async def handle_async(key: str, number: int, work_ms: int, fails: int) -> None:
    write("B", key, number)
    if work_ms:
        await asyncio.sleep(work_ms / 1000)
    _end(key, number, fails)


def _end(key: str, number: int, fails: int) -> None:
    write("F" if fails else "E", key, number)
    if fails:
        raise PlannedFailureError(f"{key} {number}")


_files: dict[int, int] = {}


def write(kind: str, key: str, number: int) -> None:
    """One write to a file opened with O_APPEND: it survives a kill -9, and lines of threads do not mix."""
    pid = os.getpid()
    if pid not in _files:
        path = os.path.join(os.environ["REFEREE_EVENTS"], str(pid))
        _files[pid] = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    os.write(_files[pid], f"{kind} {key} {number} {time.monotonic_ns()}\n".encode())


def produce(connect: Callable[[], Publish]) -> None:
    """`connect` is called in the thread of each publisher, and returns what publishes one message."""
    parts = _parts()
    start = threading.Barrier(len(parts))
    threads = [
        threading.Thread(target=_publish, args=(part, number, connect, start)) for number, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _publish(part: list[Line], publisher: int, connect: Callable[[], Publish], start: threading.Barrier) -> None:
    try:
        publish = connect()
        publish(*_first(publisher))
        start.wait()
        start_s = time.monotonic()
        with _sent_file(publisher) as sent:
            for at_ms, key, number, work_ms, fails in part:
                time.sleep(max(0.0, start_s + at_ms / 1000 - time.monotonic()))
                began_ns = time.monotonic_ns()
                publish(key, number, work_ms, fails)
                sent.write(f"{key} {number} {began_ns} {time.monotonic_ns()}\n")
    except BaseException:
        traceback.print_exc()
        os._exit(1)


async def produce_async(publish: Callable[[str, int, int, int], Awaitable[object]]) -> None:
    parts = _parts()
    await asyncio.gather(*(publish(*_first(number)) for number in range(len(parts))))
    start_s = time.monotonic()
    await asyncio.gather(*(_publish_async(part, number, publish, start_s) for number, part in enumerate(parts)))


async def _publish_async(
    part: list[Line], publisher: int, publish: Callable[[str, int, int, int], Awaitable[object]], start_s: float
) -> None:
    with _sent_file(publisher) as sent:
        for at_ms, key, number, work_ms, fails in part:
            await asyncio.sleep(max(0.0, start_s + at_ms / 1000 - time.monotonic()))
            began_ns = time.monotonic_ns()
            await publish(key, number, work_ms, fails)
            sent.write(f"{key} {number} {began_ns} {time.monotonic_ns()}\n")


def _first(publisher: int) -> tuple[str, int, int, int]:
    """The message that connects a publisher."""
    return f"warm-publisher{publisher}", 0, 0, 0


def _sent_file(publisher: int) -> TextIO:
    return open(os.path.join(os.environ["REFEREE_SENT"], str(publisher)), "a")


def _parts() -> list[list[Line]]:
    parts: list[list[Line]] = [[] for _ in range(PUBLISHERS)]
    for line in _lines():
        parts[crc32(line[1].encode()) % PUBLISHERS].append(line)
    return [part for part in parts if part]


def _lines() -> Iterator[Line]:
    with open(os.environ["REFEREE_PLAN"]) as lines:
        for line in lines:
            at_ms, key, number, work_ms, fails = line.split()
            yield int(at_ms), key, int(number), int(work_ms), int(fails)
