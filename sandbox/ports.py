"""Which port to listen on.

Promises a port that was free a moment ago; does not reserve it.
"""

import socket

HOST = "127.0.0.1"


def free_port(wanted: int = 0) -> int:
    """`wanted` when it is free, else any port that is."""
    return wanted if wanted and is_free(wanted) else _any_port()


def next_free_port(first: int) -> int:
    """The first free port from `first` upward."""
    return next((port for port in range(first, first + 100) if is_free(port)), 0) or _any_port()


def is_free(port: int) -> bool:
    """A port that only lingers in TIME_WAIT counts as free: servers bind it with SO_REUSEADDR."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
