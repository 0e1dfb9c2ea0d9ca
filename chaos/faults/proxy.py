"""A TCP proxy with one link for each part and each server it talks to. Links can be cut.

A cut resets every open connection. A loss resets the connection of the next long answer, and does not deliver it. A
hole accepts data but forwards nothing until it is healed. Data for Redis is then delivered late, as TCP would
retransmit it: these are commands of a zombie, which the fences must refuse. Data for Telegram is lost and its
connections are reset: Telegram has no fences, so a call sent in time and delivered late could not be distinguished from
a stale one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

HOST = "127.0.0.1"
CHUNK = 1 << 16
#: A shorter answer of Redis has no message.
LONG_ANSWER = 300
_RESET = struct.pack("ii", 1, 0)  # socket(7), SO_LINGER: close with a reset


class Link:
    """One listening port, forwarded to `targets` in turn. Only the network's event loop uses it."""

    def __init__(self, *targets: int, arrives_late: bool) -> None:
        self.port = 0
        self._server: asyncio.Server | None = None
        self._targets = targets
        self._turns = 0
        self._arrives_late = arrives_late
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._loses = False
        self._connections: dict[asyncio.Task[Any], list[asyncio.StreamWriter]] = {}

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        for task, writers in self._connections.items():
            for writer in writers:
                _reset(writer)
            task.cancel()

    def lead_to(self, *targets: int) -> None:
        """Other targets from now on; open connections are reset."""
        self._targets = targets
        self.cut()

    def hole(self) -> None:
        self._is_open.clear()

    def lose_answer(self) -> None:
        self._loses = True

    def heal(self) -> None:
        if not self._arrives_late and not self._is_open.is_set():
            self.cut()
        self._is_open.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a connection handler runs in a task
        writers = self._connections[task] = [writer]
        try:
            await self._is_open.wait()
            far_reader, far_writer = await self._far()
            writers.append(far_writer)
            ways = (reader, far_writer, False), (far_reader, writer, True)
            pumps = {asyncio.ensure_future(self._pump(*way)) for way in ways}
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
        except (OSError, asyncio.CancelledError):
            pass  # the server is unreachable, or the link was cut
        finally:
            del self._connections[task]
            for each in writers:
                each.close()

    async def _far(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to the next target that accepts. Raises OSError."""
        for _ in self._targets[1:]:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(HOST, self._next())
        return await asyncio.open_connection(HOST, self._next())

    def _next(self) -> int:
        self._turns += 1
        return self._targets[self._turns % len(self._targets)]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._is_open.wait()
                if is_answer and self._loses and len(data) > LONG_ANSWER:
                    self._loses = False
                    _reset(writer)
                    return
                writer.write(data)
                await writer.drain()


class Network:
    """All links, in a thread with its own event loop; other threads use `submit`."""

    def __init__(self) -> None:
        self._links: list[Link] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def link(self, *targets: int, arrives_late: bool) -> Link:
        async def made() -> Link:
            link = Link(*targets, arrives_late=arrives_late)
            await link.listen()
            self._links.append(link)
            return link

        return self._await(made())

    def submit(self, act: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(act)

    def end(self) -> None:
        async def all_ended() -> None:
            for link in self._links:
                link.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._await(all_ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
