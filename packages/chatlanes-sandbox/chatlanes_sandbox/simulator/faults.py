"""Injected errors: the next calls of a method fail as requested.

Faults are used in the order given, each for the given number of calls. Without a fault every call works.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from chatlanes.telegram.methods import METHODS
from chatlanes_sandbox.simulator.responses import refusal

#: A slow body is sent in this many pieces.
PIECES = 10


@dataclass
class Fault:
    """The effects on a call. Fields can be combined; omitted fields have no effect.

    method       only calls of this method; none: of any method
    chat_id      only calls with this chat_id
    times        number of calls; 0: all, until a reset
    hang_s       wait this long first
    takes_effect the call is carried out, and only its answer is replaced
    reset        the connection is reset, instead of an answer
    status       HTTP status and error_code of the answer
    description  its description; Telegram's own by default
    retry_after  seconds, for 429, in `parameters` and as a header
    body         the raw bytes of the answer, such as "<html>"
    slow_s       the answer's body takes this long
    """

    method: str | None = None
    chat_id: int | str | None = None
    times: int = 1
    hang_s: float = 0.0
    takes_effect: bool = False
    reset: bool = False
    status: int | None = None
    description: str | None = None
    retry_after: int | None = None
    body: str | None = None
    slow_s: float = 0.0

    def __post_init__(self) -> None:
        if self.method is not None and self.method.lower() not in METHODS:
            raise ValueError(f"{self.method} is not a method of the Bot API")
        if self.status is not None and not 200 <= self.status <= 599:
            raise ValueError("status must be from 200 to 599")
        if min(self.times, self.hang_s, self.slow_s, self.retry_after or 0) < 0:
            raise ValueError("times, hang_s, slow_s and retry_after must be at least 0")

    def is_for(self, method: str, params: dict[str, Any]) -> bool:
        if self.method is not None and self.method.lower() != method.lower():
            return False
        return self.chat_id is None or str(self.chat_id) == str(params.get("chat_id"))

    @property
    def loses_the_answer(self) -> bool:
        return self.reset or self.status is not None or self.body is not None

    @property
    def reason(self) -> str:
        """The error of the call, as `telegram.calls()` and a failed `sent` show it."""
        what = self.description or (f"status {self.status}" if self.status else "no answer that can be read")
        return f"{what} (a fault)"

    async def hang(self) -> None:
        if self.hang_s:
            await asyncio.sleep(self.hang_s)

    async def respond(self, request: Request) -> Response:
        """The failure that replaces the answer."""
        if self.reset:
            return reset_connection(request)
        status = self.status or HTTPStatus.OK
        if self.body is not None:
            return Response(self.body, status, media_type="text/html")
        return refusal(status, self.description, self.retry_after)


def fault_of(faults: list[Fault], method: str, params: dict[str, Any]) -> Fault:
    """The first of these faults that is for this call, which is consumed once; or one without effects."""
    for position, fault in enumerate(faults):
        if fault.is_for(method, params):
            fault.times -= 1
            if fault.times == 0:
                del faults[position]
            return fault
    return Fault()


def reset_connection(request: Request) -> Response:
    """Send RST instead of FIN, like a failed network. The returned response is not sent."""
    transport: asyncio.Transport = request.state.transport
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    return Response()


def slowed(response: Response, over_s: float) -> StreamingResponse:
    """The same answer with its body sent over this many seconds."""
    body = bytes(response.body)
    size = len(body) // PIECES + 1

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            await asyncio.sleep(over_s / PIECES)
            yield body[start : start + size]

    return StreamingResponse(pieces(), response.status_code, dict(response.headers))
