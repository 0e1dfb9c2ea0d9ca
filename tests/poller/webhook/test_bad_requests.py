"""10,000 mostly invalid requests: each is answered, without any 5xx except 503, and the receiver survives."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_lanes.embedded_server import start_server
from tests.poller.lanes import lane
from tests.poller.webhook.conftest import StartReceiver
from tests.poller.webhook.process import HEADER, PATH, SECRET, ReceiverProcess, update
from tests.support.waiting import WITHIN_S, until

EXAMPLES, EACH = 80, 50

some_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
a_kind = st.sampled_from(["message", "callback_query", "poll", "chat_member", "unknown_kind"])
a_number = st.integers(1, 2**31) | st.sampled_from([0, -1, 2**31 - 1, 2**53, 2**60, 1.5, None, "7", True, [], {}])
nearly_an_update = st.builds(
    lambda number, kind, event: {"update_id": number, kind: event},
    a_number,
    a_kind,
    some_json | st.fixed_dictionaries({"chat": some_json, "from": some_json, "message": some_json}),
)


def as_json(value: Any) -> bytes:
    """Also encodes values that orjson rejects."""
    return json.dumps(value).encode()


a_body = st.one_of(
    nearly_an_update.map(as_json),
    some_json.map(as_json),
    st.binary(max_size=40),
    nearly_an_update.map(lambda value: as_json(value)[:-2]),
    st.just(b"[" * 5_000),
)


@dataclass(frozen=True)
class Garbage:
    method: str
    path: str
    headers: dict[str, str | None]
    body: bytes


some_headers = st.fixed_dictionaries(
    {
        HEADER: st.sampled_from([SECRET] * 10 + ["", "wrong", None]),
        "Content-Type": st.sampled_from(["application/json"] * 8 + ["", "text/html", "application/json;x"]),
    },
    optional={
        "Content-Encoding": st.sampled_from(["gzip", "identity"]),
        "X-Forwarded-For": st.sampled_from(["1.2.3.4", "no address", ",,", "::1", "[::1]:5"]),
        "Expect": st.just("100-continue"),
    },
)
a_request = st.builds(
    Garbage,
    st.sampled_from(["POST"] * 9 + ["GET", "PUT", "HEAD", "BREW"]),
    st.sampled_from([PATH] * 12 + ["/", "/%00", PATH + "/", PATH + "?a=b", "//", "/healthz"]),
    some_headers,
    a_body,
)


class GarbageClient:
    """Uses one connection for as long as the receiver keeps it open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)

    def close(self) -> None:
        self._connection.close()

    def status(self, request: Garbage) -> int:
        headers = {name: value for name, value in request.headers.items() if value is not None}
        self._connection.request(request.method, request.path, request.body, headers)
        with self._connection.getresponse() as answer:
            answer.read()
            return answer.status


@pytest.fixture
def receiver(start_receiver: StartReceiver, tmp_path: Path) -> Iterator[ReceiverProcess]:
    """Its Redis does not wait for the disk: only the answers matter, and there are many."""
    with start_server(tmp_path / "redis", appendfsync="no") as redis:
        yield start_receiver("--workers=2", REDIS_URL=redis.url)


def test_garbage_is_answered_and_does_no_harm(receiver: ReceiverProcess) -> None:
    sender, statuses = GarbageClient(receiver.port), set()

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(a_request, min_size=EACH, max_size=EACH))
    def send(requests: list[Garbage]) -> None:
        for request in requests:
            status = sender.status(request)
            statuses.add(status)
            assert status < 500 or status == 503, request

    try:
        send()
    finally:
        sender.close()
    # The usual statuses all occurred
    assert {200, 400, 401, 403, 404, 405, 415} <= statuses
    check_receiver(receiver)


def test_malformed_http_closes_the_connection(receiver: ReceiverProcess) -> None:
    for garbage in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"\xff" * 100_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", receiver.port), WITHIN_S) as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            head = connection.recv(1000)
            assert head == b"" or head.startswith(b"HTTP/1.1 4"), garbage
    check_receiver(receiver)


def check_receiver(receiver: ReceiverProcess) -> None:
    """Its processes have not failed, and it appends updates."""
    assert not receiver.told("Traceback")
    assert not receiver.told("a receiver's process ended")
    assert receiver.send(update(2**31 - 5, chat=99)).status_code == 200
    until(lambda: 2**31 - 5 in lane(receiver.redis_url, 99))
