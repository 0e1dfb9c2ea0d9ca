"""Responses of the receiver over HTTP: 200 only for updates that are in Redis."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from celery_lanes.protocol import connect, keys
from chatlanes.settings import secret_from
from tests.poller.lanes import buried, lane
from tests.poller.process import RunningPoller
from tests.poller.webhook.conftest import StartReceiver
from tests.poller.webhook.process import HEADER, PATH, SECRET, ReceiverProcess, update
from tests.support.bot_api import BOT_ID, TOKEN, message
from tests.support.waiting import WITHIN_S, until

JSON = {"Content-Type": "application/json"}
SENT = {**JSON, HEADER: SECRET}
#: More than the receiver reads.
LONG = b" " * (3 << 20)


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (JSON, b"{}", 401),
        ({**SENT, HEADER: "wrong"}, b"{}", 403),
        ({HEADER: SECRET, "Content-Type": "text/plain"}, b'{"update_id":1}', 415),
        ({**SENT, "Content-Encoding": "gzip"}, b'{"update_id":1}', 415),
        (SENT, b'{"update_id":1', 400),
        (SENT, b'{"message":{}}', 400),
        (SENT, b'[{"update_id":1}]', 400),
        (SENT, LONG, 413),
    ],
)
def test_refused_request_reaches_no_lane(receiver: ReceiverProcess, headers: Any, body: bytes, status: int) -> None:
    answer = requests.post(receiver.url, data=body, headers=headers, timeout=WITHIN_S)
    assert answer.status_code == status
    assert requests.get(f"{receiver.address}/readyz", timeout=WITHIN_S).status_code == 200
    assert (lane(receiver.redis_url), buried(receiver.redis_url)) == ([], 0)


def test_body_without_a_length_is_read_up_to_the_limit(receiver: ReceiverProcess) -> None:
    answer = requests.post(receiver.url, data=iter([LONG]), headers=SENT, timeout=WITHIN_S)
    assert answer.status_code == 413


def test_other_paths_and_methods(receiver: ReceiverProcess) -> None:
    answers = [
        requests.get(receiver.url, timeout=WITHIN_S),
        requests.post(f"{receiver.address}/other", timeout=WITHIN_S),
        requests.get(f"{receiver.address}/healthz", timeout=WITHIN_S),
    ]
    assert [answer.status_code for answer in answers] == [405, 404, 200]
    assert answers[0].headers["Allow"] == "POST"


def test_answered_update_is_in_redis_once(receiver: ReceiverProcess) -> None:
    with connect(receiver.redis_url) as client:
        for number in (1, 1, 2, 1):
            assert receiver.send(update(number)).status_code == 200
            assert client.exists(keys.body(f"{BOT_ID}:{number}"))
    until(lambda: lane(receiver.redis_url) == [1, 2])


@pytest.mark.parametrize("number", [-1, "7", None, 2**60, {"a": 1}])
def test_malformed_update_is_buried_once(receiver: ReceiverProcess, number: Any) -> None:
    for _ in range(2):
        assert receiver.send(update(number)).status_code == 200
    assert (lane(receiver.redis_url), buried(receiver.redis_url)) == ([], 1)


@pytest.mark.parametrize("part", [b"[" * 100_000 + b"]" * 100_000, b"9" * 5_000], ids=["deep", "long"])
def test_unreadable_update_is_buried_once(receiver: ReceiverProcess, part: bytes) -> None:
    body = b'{"update_id":9,"message":{"chat":{"id":7},"x":' + part + b"}}"
    for _ in range(2):
        assert requests.post(receiver.url, data=body, headers=SENT, timeout=WITHIN_S).status_code == 200
    assert (lane(receiver.redis_url), buried(receiver.redis_url)) == ([], 1)


def test_request_contents_are_not_logged(receiver: ReceiverProcess) -> None:
    for body in (b"SECRET-WORDS", b'{"SECRET-WORDS":1}', b'{"update_id":1,"message":{"text":"SECRET-WORDS"}}'):
        requests.post(receiver.url, data=body, headers=SENT, timeout=WITHIN_S)
    receiver.tells("refused with 400: not an update")
    assert receiver.told("SECRET-WORDS") == receiver.told(SECRET) == []


def test_each_bot_has_its_path_and_secret(start_receiver: StartReceiver, tmp_path: Path) -> None:
    # Given two bots in one deployment
    other = "7:OTHER-token"
    (tmp_path / "bots.toml").write_text('[shop]\ntoken_env = "SHOP"\n[desk]\ntoken_env = "DESK"\n')
    receiver = start_receiver(BOTS=tmp_path / "bots.toml", BOT_TOKEN="", SHOP=TOKEN, DESK=other)

    # When both are sent an update with the secret of the first
    def send(name: str, secret: str) -> int:
        headers = {**SENT, HEADER: secret}
        url = f"{receiver.url}/{name}"
        return requests.post(url, json=update(1), headers=headers, timeout=WITHIN_S).status_code

    assert [send("shop", SECRET), send("desk", SECRET), send("desk", secret_from(other))] == [200, 403, 200]
    assert requests.post(receiver.url, timeout=WITHIN_S).status_code == 404
    # Then each bot has its own update, though the ids are equal
    until(lambda: lane(receiver.redis_url) == [1])
    receiver.tells("desk: refused with 403")


def test_only_the_proxys_forwarded_address_counts(start_receiver: StartReceiver) -> None:
    # Given receivers that accept only Telegram's networks, one of them behind a proxy on this machine
    behind = start_receiver(WEBHOOK_NETWORKS="telegram")
    bare = start_receiver(WEBHOOK_NETWORKS="telegram", WEBHOOK_TRUSTED_PROXIES="192.0.2.1")

    def send(receiver: ReceiverProcess, forwarded: str = "", header: str = "X-Forwarded-For") -> int:
        headers = {**SENT, **({header: forwarded} if forwarded else {})}
        return requests.post(receiver.url, json=update(1), headers=headers, timeout=WITHIN_S).status_code

    # Then the last address that the proxy added counts
    assert send(behind, "149.154.167.220") == 200
    assert send(behind, "149.154.167.220, 198.51.100.7") == 403
    assert send(behind, "198.51.100.7, 91.108.4.5") == 200
    assert [send(behind), send(behind, "unknown"), send(behind, ",,")] == [403, 403, 403]
    # And no other header does
    assert {send(behind, "149.154.167.220", name) for name in ("X-Real-IP", "X_Forwarded_For", "Client-IP")} == {403}
    assert send(behind, "for=149.154.167.220", "Forwarded") == 403
    # And the header of any other client is ignored
    assert send(bare, "149.154.167.220") == 403


def test_probes_in_a_loop_ask_redis_once_a_second(receiver: ReceiverProcess) -> None:
    def pings(client: Any) -> int:
        return int(client.info("commandstats").get("cmdstat_ping", {}).get("calls", 0))

    with connect(receiver.redis_url) as client, requests.Session() as session:
        before, began_s = pings(client), time.monotonic()
        for _ in range(200):
            assert session.get(f"{receiver.address}/readyz", timeout=WITHIN_S).status_code == 200
        assert pings(client) - before <= time.monotonic() - began_s + 1


@pytest.mark.parametrize("path", [PATH, "/healthz"])
def test_request_with_two_lengths_is_refused(receiver: ReceiverProcess, path: str) -> None:
    # Given a request whose end a proxy may see elsewhere, with another request behind it
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{HEADER}: {SECRET}\r\n"
    first = f"{head}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", receiver.port), WITHIN_S) as client:
        client.sendall(f"{first}{head}Content-Length: 15\r\n\r\n".encode() + b'{"update_id":1}')
        answered = client.makefile("rb").read()
    # Then it is refused, the connection closes, and the other request is not read
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert answered.count(b"HTTP/1.1") == 1
    assert (lane(receiver.redis_url), buried(receiver.redis_url)) == ([], 0)


def test_slow_client_is_disconnected_and_delays_no_other(receiver: ReceiverProcess) -> None:
    # Given a client that stops in its head, and one that stops in its body
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    slow = [socket.create_connection(("127.0.0.1", receiver.port), WITHIN_S) for _ in range(2)]
    slow[0].sendall(head.encode())
    slow[1].sendall(f"{head}{HEADER}: {SECRET}\r\nContent-Length: 100\r\n\r\n{{".encode())
    # Then other clients are answered
    for number in range(1, 20):
        assert receiver.send(update(number)).status_code == 200
    # And both are finally disconnected: without an answer, and with 408
    assert slow[0].recv(1000) == b""
    assert slow[1].recv(1000).startswith(b"HTTP/1.1 408 ")
    for each in slow:
        each.close()


@pytest.mark.slow
@pytest.mark.first_only
@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"WEBHOOK_URL": ""}, 2, "WEBHOOK_URL is not set: set the public address"),
        ({"WEBHOOK_URL": "https://example.org/healthz"}, 2, "the receiver uses /healthz itself"),
        ({"WEBHOOK_SECRET": "no blanks"}, 2, "WEBHOOK_SECRET is wrong (its value is secret and not shown)"),
        ({"WEBHOOK_HOST": "256.0.0.1"}, 1, "WEBHOOK_HOST 256.0.0.1"),
        ({"BOT_TOKEN": ""}, 2, "BOT_TOKEN"),
        ({"ORDER_BY": "nowhere:keys"}, 2, "ORDER_BY"),
    ],
)
def test_missing_setting_is_reported_in_one_sentence(
    tmp_path: Path, redis_url: str, settings: dict[str, str], code: int, text: str
) -> None:
    usual = {"BOT_TOKEN": TOKEN, "REDIS_URL": redis_url, "WEBHOOK_URL": "https://example.org/hook"}
    process = RunningPoller(tmp_path, "webhook", **{**usual, **settings})
    assert process.exit_code() == code
    assert len([line for line in process.lines if text in line]) == 1, process.lines
    process.end()


def test_port_in_use_is_reported(receiver: ReceiverProcess, tmp_path: Path) -> None:
    usual = {"BOT_TOKEN": TOKEN, "REDIS_URL": receiver.redis_url, "WEBHOOK_URL": "https://example.org/hook"}
    process = RunningPoller(tmp_path, "webhook", WEBHOOK_PORT=receiver.port, **usual)
    assert process.exit_code() == 1
    assert "stop the program that listens there, or set WEBHOOK_HOST and WEBHOOK_PORT" in process.lines[-1]
    process.end()


def test_filtered_updates_are_answered_and_counted(
    start_receiver: StartReceiver, redis_url: str, tmp_path: Path
) -> None:
    # Given a receiver with a custom filter, which fails on updates without a message
    (tmp_path / "own.py").write_text("def wanted(update):\n    return update['message']['text'] != 'spam'\n")
    receiver = start_receiver(FILTER="own:wanted")
    # When it gets an accepted update, a rejected one, and one on which the filter fails
    sent = [update(1), {"update_id": 2, **message("spam")}, {"update_id": 3, "callback_query": {"from": {"id": 7}}}]
    assert [receiver.send(each).status_code for each in sent] == [200, 200, 200]
    # Then the first and the last are appended, after the wait for missing ids
    until(lambda: lane(redis_url) == [1, 3])
    receiver.stop()
    assert receiver.told("3 updates so far: 2 added, 0 seen before, 0 buried, 1 filtered out")
