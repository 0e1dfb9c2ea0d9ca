"""Clients without the secret cannot keep updates out, and cannot flood the log."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.poller.lanes import lane
from tests.poller.webhook.conftest import StartReceiver
from tests.poller.webhook.process import HEADER, PATH, SECRET, ReceiverProcess, update
from tests.support.waiting import WITHIN_S, until

#: More than a receiver keeps open.
CONNECTIONS = 1_010
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
WRONG = f"{HEAD}{HEADER}: wrong\r\n"
LONG_BODY = "Content-Length: 1000000\r\n\r\n{"


class Connect(Protocol):
    """Opens a connection and sends something; it is closed after the test."""

    def __call__(self, receiver: ReceiverProcess, sent: str) -> socket.socket: ...


@pytest.fixture
def connect() -> Iterator[Connect]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], 4_096), limits[1]))
    with ExitStack() as ends:

        def begin(receiver: ReceiverProcess, sent: str) -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", receiver.port), WITHIN_S)
            ends.callback(connection.close)
            connection.sendall(sent.encode())
            return connection

        yield begin


def is_closed(connection: socket.socket) -> bool:
    """Reads all available data."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize(
    "sent",
    [
        WRONG + LONG_BODY,
        HEAD + LONG_BODY,
        f"POST /other HTTP/1.1\r\nHost: x\r\n{LONG_BODY}",
        f"GET /healthz HTTP/1.1\r\nHost: x\r\n{LONG_BODY}",
        f"{WRONG}Transfer-Encoding: chunked\r\n\r\n5\r\n{{",
    ],
)
def test_early_answer_closes_the_connection(receiver: ReceiverProcess, connect: Connect, sent: str) -> None:
    connection = connect(receiver, sent)
    answer = b""
    while part := connection.recv(65_536):  # a timeout fails the test
        answer += part
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200 "))
    assert b"\r\nconnection: close\r\n" in answer.lower()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(WRONG + LONG_BODY, id="a wrong secret and an endless body"),
        pytest.param(HEAD, id="half a head"),
        pytest.param("", id="nothing"),
        pytest.param("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", id="kept alive without the secret"),
    ],
)
def test_connections_without_the_secret_block_no_update(
    start_receiver: StartReceiver, connect: Connect, sent: str
) -> None:
    # Given a client with the secret and an open connection, and another one that sends its body slowly
    receiver = start_receiver()
    assert receiver.send(update(1)).status_code == 200
    slow = connect(receiver, f"{HEAD}{HEADER}: {SECRET}\r\nContent-Length: 16\r\n\r\n")
    slow.sendall(b"{")
    # When more connections are opened than a receiver keeps
    for number in range(2, 12):
        for _ in range(CONNECTIONS // 10):
            connect(receiver, sent)
        # Then updates are still accepted
        assert receiver.send(update(number)).status_code == 200
    slow.sendall(b'"update_id":12}')
    assert slow.recv(1_000).startswith(b"HTTP/1.1 200 ")
    until(lambda: set(range(1, 12)) <= set(lane(receiver.redis_url)))
    assert not receiver.told("Traceback")


def test_full_receiver_closes_the_oldest_and_logs_once(start_receiver: StartReceiver, connect: Connect) -> None:
    receiver = start_receiver()
    opened = [connect(receiver, "") for _ in range(CONNECTIONS)]
    # The oldest connections are closed
    receiver.tells("1000 connections: closing the oldest that has not shown the secret")
    until(lambda: is_closed(opened[0]))
    assert receiver.send(update(1)).status_code == 200
    assert len(receiver.told("1000 connections")) == 1


@pytest.mark.parametrize("secret", ["wrong", SECRET], ids=["wrong", "right"])
def test_malformed_http_is_logged_once_with_a_count(
    start_receiver: StartReceiver, connect: Connect, secret: str
) -> None:
    receiver = start_receiver()
    sent = f"{HEAD}{HEADER}: {secret}\r\nTransfer-Encoding: chunked\r\n\r\nXYZ\r\n{{}}\r\n"
    for _ in range(20):
        assert connect(receiver, sent).recv(1_000).startswith(b"HTTP/1.1 400 ")
    # First the head, and the malformed body after its answer
    later = connect(receiver, f"{HEAD}{HEADER}: {secret}\r\nTransfer-Encoding: chunked\r\n\r\n")
    later.sendall(b"XYZ\r\n")
    assert later.recv(1_000).startswith(b"HTTP/1.1 4")
    receiver.stop()
    assert len(receiver.told("malformed HTTP")) == 1
    assert not receiver.told("Traceback")
    # The last request was rejected by its head
    assert len(receiver.told("refused with")) <= 2
