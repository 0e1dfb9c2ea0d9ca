"""A TCP link to a server on this machine. It can be cut and restored."""

import socket
from contextlib import suppress
from threading import Condition, Thread

CHUNK = 1 << 16


class TcpLink:
    """A proxy for a server on this machine. Data sent while it is shut is delivered when it opens."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._state = Condition()
        self._is_open = True
        self._held: dict[socket.socket, bytes] = {}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        with self._state:
            self._is_open = False

    def open(self) -> None:
        with self._state:
            self._is_open = True
            self._state.notify_all()

    def holds(self, text: bytes) -> bool:
        """True if this text has been sent and is being held."""
        with self._state:
            return any(text in held for held in self._held.values())

    def end(self) -> None:
        """Open connections end with the server or the client behind them."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self.open()

    def _accept(self) -> None:
        with self._listening, suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._to_port)) as far:
            back = Thread(target=self._pass, args=(far, near), daemon=True)
            back.start()
            self._pass(near, far)
            back.join()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        """Until one side hangs up; data that it sent before is still delivered."""
        with suppress(OSError):
            while chunk := one.recv(CHUNK):
                self._wait(one, chunk)
                other.sendall(chunk)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    def _wait(self, sender: socket.socket, chunk: bytes) -> None:
        with self._state:
            self._held[sender] = chunk
            self._state.wait_for(lambda: self._is_open)
            del self._held[sender]
