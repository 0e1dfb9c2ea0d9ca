"""What the receiver answers, over HTTP: only what Redis holds gets a 200."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests

from poller.webhook.door import secret_from
from tasks.lanes import keys
from tasks.lanes.connect import connect
from tests.poller.bot_api import BOT_ID, TOKEN, message
from tests.poller.lanes import buried, lane
from tests.poller.waiting import WITHIN_S, until
from tests.webhook.conftest import StartReceiver
from tests.webhook.receiving import HEADER, SECRET, Receiver

JSON = {"Content-Type": "application/json"}
SENT = {**JSON, HEADER: SECRET}
#: More than a receiver reads.
LONG = b" " * (3 << 20)


def update(number: Any, chat: int = 7) -> dict[str, Any]:
    return {"update_id": number, **message(chat=chat)}


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
def test_what_is_refused_reaches_no_lane(receiver: Receiver, headers: Any, body: bytes, status: int) -> None:
    answer = requests.post(receiver.url, data=body, headers=headers, timeout=WITHIN_S)
    assert answer.status_code == status
    assert requests.get(f"{receiver.address}/readyz", timeout=WITHIN_S).status_code == 200
    assert (lane(receiver.redis_url), buried(receiver.redis_url)) == ([], 0)


def test_a_body_that_announces_no_length_is_read_up_to_the_limit(receiver: Receiver) -> None:
    answer = requests.post(receiver.url, data=iter([LONG]), headers=SENT, timeout=WITHIN_S)
    assert answer.status_code == 413


def test_other_paths_and_methods(receiver: Receiver) -> None:
    answers = [
        requests.get(receiver.url, timeout=WITHIN_S),
        requests.post(f"{receiver.address}/other", timeout=WITHIN_S),
        requests.get(f"{receiver.address}/healthz", timeout=WITHIN_S),
    ]
    assert [answer.status_code for answer in answers] == [405, 404, 200]
    assert answers[0].headers["Allow"] == "POST"


def test_an_update_is_in_redis_when_it_is_answered_and_once_however_often_it_comes(receiver: Receiver) -> None:
    with connect(receiver.redis_url) as client:
        for number in (1, 1, 2, 1):
            assert receiver.send(update(number)).status_code == 200
            assert client.exists(keys.body(f"{BOT_ID}:{number}"))
    until(lambda: lane(receiver.redis_url) == [1, 2])


@pytest.mark.parametrize("number", [-1, "7", None, 2**60, {"a": 1}])
def test_a_malformed_update_is_buried_once_so_that_telegram_is_rid_of_it(receiver: Receiver, number: Any) -> None:
    for _ in range(2):
        assert receiver.send(update(number)).status_code == 200
    assert (lane(receiver.redis_url), buried(receiver.redis_url)) == ([], 1)


def test_nothing_of_what_was_sent_is_in_the_log(receiver: Receiver) -> None:
    for body in (b"SECRET-WORDS", b'{"SECRET-WORDS":1}', b'{"update_id":1,"message":{"text":"SECRET-WORDS"}}'):
        requests.post(receiver.url, data=body, headers=SENT, timeout=WITHIN_S)
    receiver.tells("refused with 400: no update")
    assert receiver.told("SECRET-WORDS") == receiver.told(SECRET) == []


def test_many_bots_have_a_path_and_a_secret_each(start_receiver: StartReceiver, tmp_path: Path) -> None:
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
    # Then each has its own, though the ids are the same
    until(lambda: lane(receiver.redis_url) == [1])
    receiver.tells("desk: refused with 403")
