"""A worker receives the message that was published: packing and unpacking preserve it."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
import pytest
from celery import Celery, chain, group
from hypothesis import given
from hypothesis import strategies as st
from kombu.transport.virtual import Channel

import celery_lanes as lanes
from celery_lanes.protocol import envelope, plain_codec
from tests.support.lab_app import LANE_QUEUES, build

LANE = {"deadline_s": 1.0, "failed": 0, "died": 0, "replayed_s": None}


def unpacked(stored: bytes, message_id: str = "an id", **lane: Any) -> dict[str, Any]:
    return envelope.unpack(stored, message_id=message_id, queue="orders", tag=f"{message_id}#7", lane={**LANE, **lane})


def as_handed_out(message: dict[str, Any]) -> dict[str, Any]:
    """The expected result of `unpack(pack(message))`, computed from the message (after a JSON round trip)."""
    handed_out: dict[str, Any] = json.loads(json.dumps(message))
    for name in (envelope.LANE_KEYS, envelope.ONCE):
        handed_out["headers"].pop(name, None)
    handed_out["headers"][envelope.LANE] = LANE
    handed_out["properties"].update(
        delivery_tag=f"{message['headers']['id']}#7",
        priority=0,
        delivery_info={"exchange": "", "routing_key": "orders", "redelivered": False},
    )
    return handed_out


def with_plain_body(message: dict[str, Any]) -> dict[str, Any]:
    """A text body is handed out as text, although kombu encoded it in base64."""
    body, properties = message["body"], dict(message["properties"])
    if properties.pop("body_encoding", "utf-8") == "base64":
        try:
            body = base64.b64decode(body).decode()
        except UnicodeDecodeError:
            return message
    return {**message, "body": body, "properties": {**properties, "body_encoding": "utf-8"}}


class Published:
    """Captures the messages that kombu would put into a queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
        self.app: Celery = build(redis_url)
        self.messages: list[dict[str, Any]] = []
        channel: type[Channel] = self.app.connection_for_write().get_transport_cls().Channel
        monkeypatch.setattr(channel, "_put", lambda _, queue, message, **kwargs: self.messages.append(message))

    def one(self, signature: Any, **options: Any) -> dict[str, Any]:
        signature.apply_async(queue=LANE_QUEUES[0], headers=lanes.headers(["a"], once=("s", 1)), **options)
        return self.messages[-1]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Published:
    return Published(monkeypatch, redis_url)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"expires": 600},
        {"priority": 6, "shadow": "shown", "time_limit": 10, "soft_time_limit": 5},
        {"reply_to": "a queue", "correlation_id": "another", "root_id": "root", "parent_id": "parent", "retries": 3},
        {"compression": "zlib"},
        {"argsrepr": "(…)", "kwargsrepr": "{…}", "ignore_result": True},
    ],
    ids=lambda options: "+".join(options) or "plain",
)
def test_celery_messages_are_preserved(published: Published, options: dict[str, Any]) -> None:
    message = published.one(published.app.tasks["run"].s(gate="ü"), **options)
    out = unpacked(envelope.pack(message), message["headers"]["id"])
    assert with_plain_body(out) == with_plain_body(as_handed_out(message))


def test_chains_groups_chords_and_links_are_preserved(published: Published) -> None:
    run, plain = published.app.tasks["run"], published.app.tasks["plain"]
    linked = run.s(1)
    linked.link(plain.s())
    linked.link_error(plain.si())
    for signature in (
        chain(run.s(1), plain.s(), plain.s()),
        linked,
        group(run.s(1), run.s(2)),
        chain(run.s(), group(plain.s(), plain.s())),
    ):
        published.messages.clear()
        published.one(signature)
        for message in published.messages:
            out = unpacked(envelope.pack(message), message["headers"]["id"])
            assert with_plain_body(out) == with_plain_body(as_handed_out(message))


@pytest.mark.parametrize("dumps", [orjson.dumps, plain_codec.dumps], ids=["orjson", "plain"])
def test_half_a_surrogate_pair_is_preserved_in_arguments(
    published: Published, monkeypatch: pytest.MonkeyPatch, dumps: Any
) -> None:
    monkeypatch.setattr(envelope, "dumps", dumps)
    run, outs = published.app.tasks["run"], []
    for signature in (run.s("\ud800"), run.s(gate="\udfff")):
        message = published.one(signature)
        outs.append(unpacked(envelope.pack(message), message["headers"]["id"]))
    assert [json.loads(out["body"])[:2] for out in outs] == [[["\ud800"], {}], [[], {"gate": "\udfff"}]]
    assert outs[0]["headers"]["argsrepr"] == r"('\ud800',)"
    assert outs[1]["headers"]["kwargsrepr"] == r"{'gate': '\udfff'}"


def test_a_binary_body_stays_base64(published: Published) -> None:
    pickled = base64.b64encode(b"\x80\x04\x95\xff").decode()
    message = published.one(published.app.tasks["run"].s())
    message = {
        **message,
        "body": pickled,
        "content-type": "application/x-python-serialize",
        "content-encoding": "binary",
        "properties": {**message["properties"], "body_encoding": "base64"},
    }
    out = unpacked(envelope.pack(message), message["headers"]["id"])
    assert out == as_handed_out(message)
    assert (out["body"], out["properties"]["body_encoding"]) == (pickled, "base64")


def test_a_packed_message_equals_celerys(published: Published) -> None:
    message = published.one(published.app.tasks["run"].s("ü"), task_id="an id")
    body = base64.b64decode(message["body"])
    made = unpacked(envelope.pack_task("run", message["headers"]["argsrepr"], body))
    celerys = unpacked(envelope.pack(message))
    assert made["headers"].keys() == celerys["headers"].keys()
    differing = {name for name, value in celerys["headers"].items() if made["headers"].get(name) != value}
    assert differing <= {"origin", "ignore_result"}
    assert made["body"] == celerys["body"]


def test_a_repeated_message_is_marked_as_redelivered() -> None:
    stored = envelope.pack_task("run", "()", b"[[],{},{}]")
    for lane, is_redelivered in (({}, False), ({"failed": 1}, True), ({"died": 1}, True)):
        assert unpacked(stored, **lane)["properties"]["delivery_info"]["redelivered"] is is_redelivered


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
HEADERS = st.dictionaries(st.sampled_from([*envelope._TASK_HEADERS, "root_id", "own", "lane_keys", "once"]), JSON)


@pytest.mark.slow
@given(
    headers=HEADERS,
    is_task=st.booleans(),
    message_id=st.text(min_size=1),
    body=st.text() | st.binary(),
    correlation=st.none() | st.text(),
    reply_to=st.none() | st.text(),
    delivery_mode=st.sampled_from([1, 2]),
    content=st.sampled_from([("application/json", "utf-8"), ("application/x-yaml", "utf-8"), ("text/plain", "binary")]),
)
def test_any_message_is_preserved(
    headers: dict[str, Any],
    is_task: bool,
    message_id: str,
    body: str | bytes,
    correlation: str | None,
    reply_to: str | None,
    delivery_mode: int,
    content: tuple[str, str],
) -> None:
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    task = {**envelope._TASK_HEADERS, "root_id": message_id, "task": "run"} if is_task else {}
    message = {
        "body": base64.b64encode(raw).decode(),
        "content-type": content[0],
        "content-encoding": content[1],
        "headers": {**task, **headers, "id": message_id},
        "properties": {
            "correlation_id": correlation,
            "reply_to": reply_to,
            "delivery_mode": delivery_mode,
            "delivery_tag": "kombu's",
            "delivery_info": {"exchange": "e", "routing_key": "r"},
            "priority": 3,
            "body_encoding": "base64",
        },
    }
    out = unpacked(envelope.pack(message), message_id)
    assert with_plain_body(out) == with_plain_body(as_handed_out(message))


@pytest.mark.parametrize(
    "stored", [b"", b"{}", b"[]", b"3", b"{no json", b'{"properties": 1}', b"{}\nbody", b"[]\nbody"]
)
def test_a_malformed_message_is_reported(stored: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        unpacked(stored)
