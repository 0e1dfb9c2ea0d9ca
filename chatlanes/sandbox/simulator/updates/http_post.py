"""HTTP/1.1 POST to one address over keep-alive connections.

One connection for each concurrent request, reused if the server allows it. No redirects and no certificate checks: it
sends to programs of this machine.
"""

import asyncio
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

#: How long the public server waits for a webhook.
ANSWER_WITHIN_S = 60.0
LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class PostResponse:
    """`retry_after_s` is 0 if the answer has none."""

    status: int
    reason: str
    retry_after_s: float = 0.0


class BrokenResponseError(ConnectionError):
    """A malformed or incomplete HTTP response."""


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Address:
    """Raises OSError if it cannot be reached or closes the connection, TimeoutError if it does not answer."""

    url: str
    headers: dict[str, str]
    _idle: list[Connection] = field(default_factory=list, init=False)

    @property
    def is_here(self) -> bool:
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")

    async def post(self, body: bytes) -> PostResponse:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            if self._idle:
                try:
                    return await self._exchange(self._idle.pop(), body)
                except (ConnectionError, EOFError):
                    pass  # closed while it was idle, most likely
            return await self._exchange(await self._connect(), body)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _connect(self) -> Connection:
        place = urlsplit(self.url)
        secure = place.scheme == "https"
        context = ssl._create_unverified_context() if secure else None  # noqa: S323 - on this machine
        return await asyncio.open_connection(place.hostname, place.port or (443 if secure else 80), ssl=context)

    async def _exchange(self, connection: Connection, body: bytes) -> PostResponse:
        reader, writer = connection
        try:
            writer.write(self._head(len(body)) + body)
            answer, is_kept = await _read(reader)
        except BaseException:
            writer.close()
            raise
        if is_kept:
            self._idle.append(connection)
        else:
            writer.close()
        return answer

    def _head(self, length: int) -> bytes:
        place = urlsplit(self.url)
        target = place.path or "/"
        lines = [f"POST {target} HTTP/1.1", f"Host: {place.netloc}", "Content-Type: application/json"]
        lines += [f"Content-Length: {length}", *(f"{name}: {value}" for name, value in self.headers.items())]
        return "\r\n".join([*lines, "", ""]).encode()


async def _read(reader: asyncio.StreamReader) -> tuple[PostResponse, bool]:
    """The answer, and True if its connection can be used again."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise BrokenResponseError("the connection was closed without an answer") from error
    status_line, *lines = head.split("\r\n")
    version, _, rest = status_line.partition(" ")
    code, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not code.isdigit():
        raise BrokenResponseError("malformed HTTP response")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    is_kept = length.isdigit() and headers.get("connection", "").lower() != "close"
    if length.isdigit():
        await reader.readexactly(min(int(length), LONGEST_ANSWER))
    wish = headers.get("retry-after", "")
    return PostResponse(int(code), reason, float(wish) if wish.isdigit() else 0.0), is_kept
