"""One HTTP/1.1 request and its answer, on a connection that stands.

Promises that an answer is taken whole or not at all, and that a connection is good for the next request (`stays`) only
when its answer ended where it said it would. Knows nothing of pools, proxies and TLS (connections.py). Much leaner than
http.client, which takes the head of an answer for an e-mail's.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn, Self

#: A larger one is sent, and read, in pieces: each may take as long as a stall.
PIECE_BYTES = 1 << 16
#: As http.client: what is longer, or more, is no answer of anybody's.
LONGEST_LINE = 1 << 16
MOST_FIELDS = 100
_END = (b"\r\n", b"\n")
#: For zlib: what follows is gzip.
_GZIP = 16 + zlib.MAX_WBITS


class BrokenError(Exception):
    """No answer, or not all of it: the request may have arrived. Its words say why."""


class Incoming:
    """An answer as it comes: its head was read. Reading on raises BrokenError."""

    def __init__(self, file: BinaryIO, within_s: float) -> None:
        self._file = file
        self._within_s = within_s
        version, self.status, fields = _head(file)
        self._is_chunked = b"chunked" in fields.get(b"transfer-encoding", b"").lower()
        self._length = 0 if self.status in (204, 304) else _length(fields.get(b"content-length"))
        self._is_gzip = fields.get(b"content-encoding", b"").lower() == b"gzip"
        is_closed = b"close" in fields.get(b"connection", b"").lower() or version == b"HTTP/1.0"
        #: Whether the connection may be used again, when all has been read.
        self.stays = not is_closed and self._is_chunked != (self._length is not None)

    def content(self) -> bytes:
        """All of it."""
        whole = b"".join(self.pieces())
        if not self._is_gzip:
            return whole
        try:
            return zlib.decompress(whole, _GZIP)
        except zlib.error as error:
            raise BrokenError(f"no answer ({error})") from error

    def pieces(self) -> Iterator[bytes]:
        """All of it, one piece after the other, compressed as it came."""
        try:
            if self._is_chunked:
                yield from _chunks(self._file)
            elif self._length is not None:
                yield from _stretch(self._file, self._length)
            else:
                yield from iter(lambda: self._file.read(PIECE_BYTES), b"")
        except OSError as error:
            _break(error, self._within_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()


def exchange(sock: Any, head: bytes, body: bytes, *, stall_s: float, within_s: float) -> Incoming:
    """Send a request and read the head of its answer. `stall_s`: the longest while sending. Raises BrokenError."""
    was_taken = _send(sock, head, body, stall_s)
    sock.settimeout(within_s)
    file = sock.makefile("rb")
    try:
        incoming = Incoming(file, within_s)
    except OSError as error:
        file.close()
        _break(error, within_s)
    incoming.stays &= was_taken
    return incoming


def _send(sock: Any, head: bytes, body: bytes, stall_s: float) -> bool:
    """Whether all of it was taken; else the server has answered before the end, perhaps."""
    pieces = memoryview(head + body)  # in one packet, if it is small
    try:
        sock.settimeout(stall_s)
        for at in range(0, len(pieces), PIECE_BYTES):
            sock.sendall(pieces[at : at + PIECE_BYTES])
    except BrokenPipeError:
        return False
    except OSError as error:
        _break(error, stall_s)
    return True


def _break(error: OSError, within_s: float) -> NoReturn:
    if isinstance(error, TimeoutError):
        raise BrokenError(f"no answer within {within_s:g} s") from error
    raise BrokenError(f"no answer ({error.strerror or error})") from error


def _line(file: BinaryIO) -> bytes:
    line = file.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise ConnectionError("a line without an end" if len(line) >= LONGEST_LINE else "the connection was closed")
    return line


def _head(file: BinaryIO) -> tuple[bytes, int, dict[bytes, bytes]]:
    """Version, status and fields; those of interim answers are passed over."""
    while True:
        version, _, rest = _line(file).partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise ConnectionError("what came is no HTTP")
        fields = _fields(file)
        if (status := int(rest[:3])) >= 200:
            return version, status, fields


def _fields(file: BinaryIO) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for _ in range(MOST_FIELDS):
        line = _line(file)
        if line in _END:
            return fields
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    raise ConnectionError("a head without an end")


def _length(told: bytes | None) -> int | None:
    if told is not None and not told.isdigit():
        raise ConnectionError("an answer of no length")
    return None if told is None else int(told)


def _stretch(file: BinaryIO, count: int) -> Iterator[bytes]:
    left = count
    while left:
        piece = file.read(min(PIECE_BYTES, left))
        if not piece:
            raise ConnectionError("the connection was closed in the middle")
        left -= len(piece)
        yield piece


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while size := _size(_line(file)):
        yield from _stretch(file, size)
        _line(file)
    while _line(file) not in _END:
        pass  # fields behind the last chunk


def _size(line: bytes) -> int:
    told = line.partition(b";")[0].strip()
    try:
        return int(told, 16)
    except ValueError:
        raise ConnectionError("an answer of no length") from None
