"""A link forwards, can be cut, and drops or delays data."""

import socket
import threading
from collections.abc import Iterator

import pytest

from chaos.faults.proxy import HOST, Link, Network

TIMEOUT_S = 30.0


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.end()


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of an echo server."""
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except OSError:
            pass


def connected(link: Link) -> socket.socket:
    client = socket.create_connection((HOST, link.port), TIMEOUT_S)
    client.sendall(b"hello")
    assert client.recv(100) == b"hello"
    return client


def test_cut_resets_open_connections_only(network: Network, echo: int) -> None:
    link = network.link(echo, arrives_late=True)
    with connected(link) as client:
        network.submit(link.cut)
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    connected(link).close()


def test_data_in_a_hole_arrives_late(network: Network, echo: int) -> None:
    link = network.link(echo, arrives_late=True)
    with connected(link) as client:
        network.submit(link.hole)
        client.sendall(b"late")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        network.submit(link.heal)
        client.settimeout(TIMEOUT_S)
        assert client.recv(100) == b"late"


def test_data_to_telegram_in_a_hole_is_lost(network: Network, echo: int) -> None:
    link = network.link(echo, arrives_late=False)
    with connected(link) as client:
        network.submit(link.hole)
        client.sendall(b"lost")
        network.submit(link.heal)
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    connected(link).close()


def test_connection_made_in_a_hole_works_after_healing(network: Network, echo: int) -> None:
    link = network.link(echo, arrives_late=True)
    network.submit(link.hole)
    with socket.create_connection((HOST, link.port), TIMEOUT_S) as client:
        client.sendall(b"hello")
        network.submit(link.heal)
        assert client.recv(100) == b"hello"


def test_unreachable_server_ends_the_connection(network: Network) -> None:
    with socket.create_server((HOST, 0)) as gone:
        port = gone.getsockname()[1]
    link = network.link(port, arrives_late=True)
    with socket.create_connection((HOST, link.port), TIMEOUT_S) as client:
        assert client.recv(100) == b""


def test_the_next_long_answer_is_lost_with_its_connection(network: Network, echo: int) -> None:
    link = network.link(echo, arrives_late=True)
    with connected(link) as client:
        network.submit(link.lose_answer)
        client.sendall(b"x" * 1000)
        with pytest.raises(ConnectionResetError):
            client.recv(1000)
    connected(link).close()
