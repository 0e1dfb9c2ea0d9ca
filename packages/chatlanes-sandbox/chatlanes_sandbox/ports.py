"""Chooses ports to listen on.

A port was free a moment ago, and no other sandbox of this machine gets it while this process lives. Other programs may
still take it.
"""

import socket

HOST = "127.0.0.1"
#: The names under which a browser on this machine may use the servers. Another name is DNS rebinding.
NAMES = frozenset({HOST, "localhost", "[::1]"})
#: Held while this process lives. Sandboxes do not use UDP: the holder of a UDP port may use the TCP port.
_claims: list[socket.socket] = []


def free_port(wanted: int = 0) -> int:
    """`wanted` if it is free, or any free port."""
    return wanted if wanted and is_free(wanted) else _any_port()


def next_free_port(first: int) -> int:
    """The first port from `first` upward that is free and that no other sandbox has claimed; it is claimed."""
    return next((port for port in range(first, first + 100) if is_free(port) and claim(port)), 0) or _any_port()


def claim(port: int) -> bool:
    """True if this process has the port now; two sandboxes that start together may both find it free."""
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        held.bind((HOST, port))
    except OSError:
        held.close()
        return False
    _claims.append(held)
    return True


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
