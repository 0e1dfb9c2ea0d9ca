"""A fake Redis 6.0, which is too old for lanes. It accepts every command. No real server of that age is available."""

from __future__ import annotations

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

INFO = b"redis_version:6.0.16\r\nredis_mode:standalone\r\ncluster_enabled:0\r\n"


class _OldServerHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        queued: list[bytes] | None = None
        while line := self.rfile.readline():
            command, *_ = [self._word().upper() for _ in range(int(line[1:]))]
            if command == b"EXEC":
                self.wfile.write(b"*%d\r\n%s" % (len(queued or ()), b"".join(queued or ())))
                queued = None
            elif queued is not None:
                queued.append(_answer(command))
                self.wfile.write(b"+QUEUED\r\n")
            else:
                queued = [] if command == b"MULTI" else None
                self.wfile.write(_answer(command))

    def _word(self) -> bytes:
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:size]


def _answer(command: bytes) -> bytes:
    if command == b"INFO":
        return b"$%d\r\n%s\r\n" % (len(INFO), INFO)
    if command == b"HELLO":
        return b"%1\r\n+proto\r\n:3\r\n"
    if command == b"SMEMBERS":
        return b"*0\r\n"
    return b"+PONG\r\n" if command == b"PING" else b":1\r\n"


@contextmanager
def old_server() -> Iterator[str]:
    """Run the server; yields its URL."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OldServerHandler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        finally:
            server.shutdown()
            thread.join()
