"""The simulator sends to a webhook: order, retries, retry_after, secrets, limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest

from chatlanes_sandbox.simulator import Simulator
from chatlanes_sandbox.simulator.webhook import queue_of
from tests.sandbox.calling import PATIENCE_S, BotClient, text_update, wait_until

NOWHERE = "http://127.0.0.1:9/"


class Listening:
    """A webhook. It answers what `answers` says for the next requests, and then 200."""

    def __init__(self) -> None:
        self.got: list[tuple[int, float, str]] = []  # update_id, when, secret
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.body = b""  # of each answer
        self.at_once = self.most_at_once = 0
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()
        listening = self

        class WebhookHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers = listening.take(orjson.loads(body), self.headers)
                self.send_response(status)
                length = {} if "Transfer-Encoding" in headers else {"Content-Length": str(len(listening.body))}
                for name, value in {**length, **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(listening.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), WebhookHandler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, update: Any, headers: Any) -> tuple[int, dict[str, str]]:
        with self._lock:
            self.got.append((update["update_id"], time.monotonic(), headers["X-Telegram-Bot-Api-Secret-Token"] or ""))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            answer = self.answers.pop(0) if self.answers else (200, {})
        self.gate.wait(PATIENCE_S)
        with self._lock:
            self.at_once -= 1
        return answer

    @property
    def ids(self) -> list[int]:
        return [update_id for update_id, _, _ in self.got]


@pytest.fixture
def listening() -> Iterator[Listening]:
    webhook = Listening()
    yield webhook
    webhook.gate.set()
    webhook.server.shutdown()
    webhook.server.server_close()


def pressed(chat: int = 7) -> dict[str, Any]:
    return {"callback_query": {"id": "1", "from": {"id": chat}, "message": {"chat": {"id": chat}}}}


def test_waiting_and_new_updates_are_sent(simulator: Simulator, bot: BotClient, listening: Listening) -> None:
    waiting = simulator.push(text_update(), text_update())
    bot.result("setWebhook", url=listening.url, secret_token="s3cret", allowed_updates=["message"])
    later = simulator.push(text_update(), {"poll": {"id": "1"}})
    wait_until(lambda: simulator.stats()["confirmed"] == 3)
    assert [(update_id, secret) for update_id, _, secret in listening.got] == [
        (update_id, "s3cret") for update_id in [*waiting, later[0]]
    ]
    assert simulator.stats()["webhook"] == {"200": 3}
    assert simulator.stats()["dropped"] == 1


JSON_CALL = b'{"method": "sendMessage", "chat_id": 7, "text": "hello"}'
FORM_CALL = b"".join(
    b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % field
    for field in ((b"method", b"sendMessage"), (b"chat_id", b"7"), (b"text", b"hello"))
)
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(FORM_CALL) + 5, FORM_CALL + b"--x--")


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ({"Content-Type": "application/json"}, JSON_CALL, ["hello"]),
        # As aiogram answers
        ({"Content-Type": "multipart/form-data; boundary=x", "Transfer-Encoding": "chunked"}, CHUNKS, ["hello"]),
        ({"Content-Type": "application/json"}, b'{"method": "sendMessage", "chat_id": 7, "text": ""}', []),
        ({"Content-Type": "application/json"}, b'{"method": "nosuch"}', []),
        ({"Content-Type": "application/json"}, b"{", []),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--y", []),
        ({"Content-Type": "text/plain"}, b"ok", []),
    ],
)
def test_a_call_in_an_answer_is_carried_out(
    simulator: Simulator, bot: BotClient, listening: Listening, headers: dict[str, str], body: bytes, said: list[str]
) -> None:
    listening.answers, listening.body = [(200, headers)], body
    bot.result("setWebhook", url=listening.url)
    simulator.push(text_update())
    wait_until(lambda: simulator.stats()["confirmed"] == 1)
    assert [call["params"]["text"] for call in simulator.calls("sendMessage") if call["ok"]] == said


@pytest.mark.parametrize("secret", ["gehe\u00efm", "two\nlines"])
def test_a_secret_that_no_header_can_hold_is_named(
    simulator: Simulator, bot: BotClient, listening: Listening, secret: str
) -> None:
    bot.result("setWebhook", url=listening.url, secret_token=secret)
    simulator.push(text_update())
    wait_until(lambda: "last_error_message" in bot.result("getWebhookInfo"))
    assert listening.got == []


@pytest.mark.slow
def test_a_refused_update_is_sent_again(simulator: Simulator, bot: BotClient, listening: Listening) -> None:
    listening.answers = [(500, {}), (500, {}), (503, {"Retry-After": "1"})]
    bot.result("setWebhook", url=listening.url)
    simulator.push(text_update())
    wait_until(lambda: simulator.stats()["confirmed"] == 1)
    at = [when for _, when, _ in listening.got]
    # One-sided: a slow machine only makes the pauses longer.
    assert len(at) == 4
    assert at[2] - at[1] >= 2
    assert at[3] - at[2] >= 1
    info = bot.result("getWebhookInfo")
    assert info["last_error_message"] == "Wrong response from the webhook: 503 Service Unavailable"
    assert info["pending_update_count"] == 0


def test_order_is_kept_inside_of_a_queue_and_one_is_sent_at_a_time(
    simulator: Simulator, bot: BotClient, listening: Listening
) -> None:
    # Given a webhook that answers nothing for now
    listening.gate.clear()
    bot.result("setWebhook", url=listening.url, max_connections=2)
    ids = simulator.push(text_update(), text_update(), pressed(), text_update(chat=8), pressed(8))
    wait_until(lambda: listening.at_once == 2)
    # Then as many are under way as there may be, each the first of its queue
    assert sorted(listening.ids) == [ids[0], ids[2]]
    listening.gate.set()
    wait_until(lambda: simulator.stats()["confirmed"] == 5)
    assert listening.most_at_once == 2
    assert [each for each in listening.ids if each in ids[:2]] == ids[:2]


def test_disorder_is_between_queues_only(simulator: Simulator, bot: BotClient, listening: Listening) -> None:
    simulator.disturb(jitter_s=0.05, repeat=0.3, seed=1)
    bot.result("setWebhook", url=listening.url)
    messages = simulator.push(*(text_update() for _ in range(20)))
    buttons = simulator.push(*(pressed() for _ in range(20)))
    wait_until(lambda: simulator.stats()["confirmed"] == 40)
    first = list(dict.fromkeys(listening.ids))
    assert first != sorted(first)
    assert len(listening.ids) > 40
    for queue in (messages, buttons):
        assert [each for each in first if each in queue] == queue


def test_deleted_it_ends_and_polls_work_again(simulator: Simulator, bot: BotClient) -> None:
    bot.result("setWebhook", url=NOWHERE)
    pushed = simulator.push(text_update())
    wait_until(lambda: "Connect" in bot.result("getWebhookInfo").get("last_error_message", ""))
    assert bot("getUpdates").status_code == 409
    bot.result("deleteWebhook")
    assert bot.ids() == pushed


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (text_update(), {"edited_message": text_update()["message"]}, True),
        (text_update(), text_update(chat=8), False),
        (text_update(), pressed(), False),
        ({"chat_member": {"from": {"id": 7}}}, {"inline_query": {"from": {"id": 7}}}, True),
        ({"poll": {"id": "1"}}, {"poll_answer": {"poll_id": "1"}}, True),
        ({"my_chat_member": {"chat": {"id": 7}}}, text_update(), False),
        ("no update", {"message": 5}, False),
    ],
)
def test_queues(one: Any, other: Any, is_same: bool) -> None:
    assert (queue_of(one) == queue_of(other)) is is_same
