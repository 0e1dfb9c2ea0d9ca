"""One process of the receiver: the app on a listening socket, until it is asked to stop.

Promises that what is under way when it is asked to stop is answered, that nobody keeps a connection by sending a
request slowly, and that connections without the secret, however many, keep out none that shows it. Does not log
requests: a path or a header may be secret.
"""

import asyncio
import resource
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import uvicorn
from h11 import IDLE, LocalProtocolError
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from chatlanes.poller.runtime import Stop
from chatlanes.poller.webhook.peers import PEER, Peer, Strangers
from chatlanes.poller.webhook.rate_limited_log import RateLimitedLog

#: From its first byte to its last.
HEAD_WITHIN_S = 10.0
#: Longer than proxies keep theirs (nginx: 60 s), so that it is never the receiver that hangs up under a request.
KEEP_ALIVE_S = 75
#: Telegram has at most 100 connections, and a proxy a few more. Beyond these the oldest that has shown no secret is
#: closed; when all have shown it, a request is answered with 503.
MOST_CONNECTIONS = 1_000
#: After the stop an update waits so long for Redis. Then it is answered with 503: all is to be over within 2 s.
ANSWER_WITHIN_S = 1.0
#: Longer than the answers take.
STOP_WITHIN_S = 6
BACKLOG = 1_024
#: Connections, those that asyncio accepts at once, and what else a process has open.
MOST_DESCRIPTORS = MOST_CONNECTIONS + BACKLOG + 256


class CannotListenError(Exception):
    """One sentence about WEBHOOK_HOST and WEBHOOK_PORT."""


def listener(host: str, port: int) -> socket.socket:
    """Raises CannotListenError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With the protocol named, asyncio switches Nagle's algorithm off: else every second answer is 40 ms late.
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
            f"cannot listen on {host}:{port} ({error.strerror}): stop what listens there, or set WEBHOOK_HOST and "
            "WEBHOOK_PORT"
        ) from error
    return listening


def serve(
    app: ASGIApp,
    listening: socket.socket,
    trusted: list[str],
    stop: Stop,
    give_up: Sequence[Callable[[], None]] = (),
) -> None:
    """Until asked to stop. X-Forwarded-For is believed when it comes from one of the `trusted`, and else ignored.

    `give_up` ends what requests wait for.
    """
    _allow_descriptors()
    config = uvicorn.Config(
        app,
        http=partial(PatientProtocol, Strangers(), RateLimitedLog()),  # type: ignore[arg-type]
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
    """Debian's default of 1,024 is not enough: a process that has no more cannot accept the connection to be kept."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MOST_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class StoppableServer(uvicorn.Server):
    """Signals are `stop`'s: uvicorn would end the process with the signal itself, and not with 0."""

    def __init__(self, config: uvicorn.Config, stop: Stop, give_up: Sequence[Callable[[], None]]) -> None:
        super().__init__(config)
        self._stop = stop
        self._give_up = give_up

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for give_up in self._give_up:
            asyncio.get_running_loop().call_later(ANSWER_WITHIN_S, give_up)
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._stop.is_requested


class PatientProtocol(H11Protocol):
    """Up to a limit: the head of a request has HEAD_WITHIN_S. The body's limit is the app's."""

    _late: asyncio.TimerHandle | None = None

    def __init__(
        self, strangers: Strangers, warnings: RateLimitedLog, *, app_state: dict[str, Any], **given: Any
    ) -> None:
        self._strangers = strangers
        self._warnings = warnings
        self._peer = Peer(strangers, self._hang_up)
        super().__init__(app_state={**app_state, PEER: self._peer}, **given)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MOST_CONNECTIONS - 1:
            self._make_room()
        super().connection_made(transport)
        self._peer.arrives(self.client[0] if self.client else "")
        self._watch()

    def _make_room(self) -> None:
        peer = self._strangers.least_welcome()
        if peer is None:
            self._warnings.count(f"{MOST_CONNECTIONS} connections have shown the secret: more are answered with 503")
            return
        self._warnings.count(f"{MOST_CONNECTIONS} connections: closing the oldest that has shown no secret")
        peer.hang_up()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def _hang_up(self) -> None:
        self._peer.leaves()
        self.connections.discard(self)
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._watch_no_more()
        self._peer.leaves()
        super().connection_lost(error)

    def send_400_response(self, msg: str) -> None:
        """What has been sent is no HTTP. An app that has not answered yet, does not."""
        self._warnings.count("refused with 400: malformed HTTP")
        cycle = self.cycle
        self._peer.is_malformed = True
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        try:
            super().send_400_response(msg)
        except LocalProtocolError:  # it has been answered
            self.transport.close()

    def _watch(self) -> None:
        """While a head is not complete. Between two requests uvicorn's own timer runs."""
        is_waiting = self.conn.their_state is IDLE and not self.transport.is_closing()
        if not is_waiting or self.timeout_keep_alive_task is not None:
            self._watch_no_more()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_WITHIN_S, self._close)

    def _watch_no_more(self) -> None:
        if self._late:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self.transport.close()

    def shutdown(self) -> None:
        self._watch_no_more()
        super().shutdown()


def describe(listening: socket.socket) -> str:
    """host:port"""
    name: Any = listening.getsockname()
    return f"{name[0]}:{name[1]}"
