"""A server whose WAITAOF waits for the next fsync of `everysec`.

The embedded server does not wait. A proxy in front of it delays each WAITAOF until a second after the previous
one, and by 0.7 s at least: on a busy machine, a second may have passed before it comes.
"""

from __future__ import annotations

import socket
import socketserver
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread

from celery_lanes.embedded_server import HOST, Server
from celery_lanes.protocol import connect
from celery_lanes.protocol.server import WAITAOF_KEY


class _Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int) -> None:
        super().__init__((HOST, 0), _ProxyHandler)
        self.port = port
        self.last_fsync_s = float("-inf")
        self.fsyncing = Lock()


class _ProxyHandler(socketserver.BaseRequestHandler):
    server: _Proxy

    def handle(self) -> None:
        with socket.create_connection((HOST, self.server.port)) as redis, suppress(OSError):
            Thread(target=self._forward_replies, args=(redis,), daemon=True).start()
            while data := self.request.recv(1 << 16):
                if b"WAITAOF" in data:
                    self._fsync()
                redis.sendall(data)

    def _forward_replies(self, redis: socket.socket) -> None:
        with suppress(OSError):
            while data := redis.recv(1 << 16):
                self.request.sendall(data)

    def _fsync(self) -> None:
        with self.server.fsyncing:
            time.sleep(max(self.server.last_fsync_s + 1 - time.monotonic(), 0.7))
            self.server.last_fsync_s = time.monotonic()


@contextmanager
def waiting(server: Server) -> Iterator[str]:
    """Run the proxy in front of `server`; yields the URL of the proxy."""
    with _Proxy(server.port) as proxy:
        thread = Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"redis://{HOST}:{proxy.server_address[1]}/0"
        finally:
            proxy.shutdown()
            thread.join()


def believe(server: Server) -> None:
    """Store the result of a WAITAOF check that found that this server waits."""
    with connect(server.url) as client:
        client.set(WAITAOF_KEY, f"{client.info('server')['run_id']} ")
