"""One process of the receiver: serves the app on a listening socket until the stop request.

Guarantees that requests in progress at the stop request are answered, that a client cannot keep a connection by sending
a request slowly, and that connections without the secret, however many, do not keep out one that shows it: if there are
too many, the oldest connection without the secret, of the address with the most, is closed. Behind a proxy all have the
same address, but those that carry Telegram's updates have shown the secret. Does not log requests: a path or a header
may be secret.
"""

import asyncio
import resource
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn
from h11 import IDLE, LocalProtocolError
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from chatlanes.poller.runtime import Stop
from chatlanes.poller.webhook.app import PEER, RateLimitedLog

#: From the first byte of the head to its last.
HEAD_WITHIN_S = 10.0
#: Longer than that of proxies (nginx: 60 s), so that the receiver does not close a connection that gets a request.
KEEP_ALIVE_S = 75
#: Telegram has at most 100 connections, and a proxy a few more. Beyond this limit the oldest connection that has not
#: shown the secret is closed; if all have shown it, a request is answered with 503.
MOST_CONNECTIONS = 1_000
#: After the stop request an update waits this long for Redis. Then it is answered with 503: the shutdown must take at
#: most 2 s. A request that is not complete by then gets no answer: Telegram sends it again.
ANSWER_WITHIN_S = 1.0
#: Longer than the last answers take.
STOP_WITHIN_S = 2
BACKLOG = 1_024
#: For connections, those that asyncio accepts at once, and other files of the process.
MOST_DESCRIPTORS = MOST_CONNECTIONS + BACKLOG + 256


class CannotListenError(Exception):
    """One sentence about WEBHOOK_HOST and WEBHOOK_PORT."""


def listener(host: str, port: int) -> socket.socket:
    """Raises CannotListenError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With an explicit protocol, asyncio disables Nagle's algorithm; otherwise every second answer is 40 ms late.
        listening = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
    except OSError as error:
        raise CannotListenError(f"WEBHOOK_HOST {host}: {error.strerror}; set the address of this machine") from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CannotListenError(
            f"cannot listen on {host}:{port} ({error.strerror}): stop the program that listens there, or set "
            "WEBHOOK_HOST and WEBHOOK_PORT"
        ) from error
    return listening


def serve(
    app: ASGIApp,
    listening: socket.socket,
    trusted: list[str],
    stop: Stop,
    give_up: Sequence[Callable[[], None]] = (),
) -> None:
    """Serves until the stop request. X-Forwarded-For is used if it comes from a `trusted` address, else ignored.

    The functions `give_up` end the waits of requests.
    """
    _allow_descriptors()
    config = uvicorn.Config(
        app,
        http=partial(ReceiverProtocol, UnauthenticatedPeers(), RateLimitedLog()),  # type: ignore[arg-type]
        backlog=BACKLOG,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=trusted,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )
    asyncio.run(StoppableServer(config, stop, give_up).serve([listening]))


def _allow_descriptors() -> None:
    """Raises Debian's default of 1,024, with which a process could not accept enough connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MOST_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class StoppableServer(uvicorn.Server):
    """Leaves signals to `stop`: uvicorn would end the process with the signal, instead of exit code 0."""

    def __init__(self, config: uvicorn.Config, stop: Stop, give_up: Sequence[Callable[[], None]]) -> None:
        super().__init__(config)
        self._stop = stop
        self._give_up = give_up

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(ANSWER_WITHIN_S, self._end_waits)
        await super().shutdown(sockets)

    def _end_waits(self) -> None:
        for give_up in self._give_up:
            give_up()
        for connection in list(self.server_state.connections):
            if isinstance(connection, ReceiverProtocol):
                connection.close_unfinished()

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._stop.is_requested


@dataclass
class UnauthenticatedPeers:
    """Peers that have not shown a secret, by address, the oldest first."""

    _by_address: dict[str, dict["ReceiverProtocol", None]] = field(default_factory=dict, init=False)

    def add(self, peer: "ReceiverProtocol") -> None:
        self._by_address.setdefault(peer.address, {})[peer] = None

    def remove(self, peer: "ReceiverProtocol") -> None:
        """Removes a peer, if it is here."""
        peers = self._by_address.get(peer.address, {})
        peers.pop(peer, None)
        if not peers:
            self._by_address.pop(peer.address, None)

    def next_to_close(self) -> "ReceiverProtocol | None":
        """The oldest peer of the address with the most peers; None if all peers have shown a secret."""
        most = max(self._by_address.values(), key=len, default=None)
        return next(iter(most)) if most else None


class ReceiverProtocol(H11Protocol):
    """Closes a connection whose request head takes longer than HEAD_WITHIN_S. The app limits the body, and finds this
    connection in the state of its scope.
    """

    address = ""  # of the other end
    is_malformed = False
    _head_timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        peers: UnauthenticatedPeers,
        warnings: RateLimitedLog,
        *,
        app_state: dict[str, Any],
        **given: Any,
    ) -> None:
        self._unauthenticated = peers
        self._warnings = warnings
        super().__init__(app_state={**app_state, PEER: self}, **given)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MOST_CONNECTIONS - 1:
            self._close_one()
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._unauthenticated.add(self)
        self._update_head_timer()

    def _close_one(self) -> None:
        peer = self._unauthenticated.next_to_close()
        if peer is None:
            self._warnings.count(f"{MOST_CONNECTIONS} connections have shown the secret: others are answered with 503")
            return
        self._warnings.count(f"{MOST_CONNECTIONS} connections: closing the oldest that has not shown the secret")
        peer.abort()

    def authenticated(self) -> None:
        """The request that is being answered has shown the secret."""
        self._unauthenticated.remove(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_head_timer()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._unauthenticated.remove(self)
        self.connections.discard(self)
        self.transport.abort()

    def close_unfinished(self) -> None:
        """Closes the connection, after the answer to a request that is complete. The app sees that its client left."""
        if self.cycle is None or self.cycle.more_body or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False  # also of a connection that was accepted during the shutdown

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_head_timer()
        self._unauthenticated.remove(self)
        super().connection_lost(error)

    def send_400_response(self, msg: str) -> None:
        """For malformed HTTP. If the app has not answered yet, it does not answer any more."""
        self._warnings.count("refused with 400: malformed HTTP")
        cycle = self.cycle
        self.is_malformed = True
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        try:
            super().send_400_response(msg)
        except LocalProtocolError:  # the request was answered before
            self.transport.close()

    def _update_head_timer(self) -> None:
        """Runs a timer while a head is not complete. Between requests the timer of uvicorn runs."""
        is_waiting = self.conn.their_state is IDLE and not self.transport.is_closing()
        if not is_waiting or self.timeout_keep_alive_task is not None:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_WITHIN_S, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def shutdown(self) -> None:
        self._stop_head_timer()
        super().shutdown()


def describe(listening: socket.socket) -> str:
    """host:port"""
    name: Any = listening.getsockname()
    return f"{name[0]}:{name[1]}"
