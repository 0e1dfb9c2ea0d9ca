"""The stored form of a Celery message, without the fields that have the same value in most messages.

Guarantees that `unpack(pack(m))` equals `m` except for the delivery tag, the priority (a lane has its own order), the
number of retries, the headers that only concern the lanes, and half surrogate pairs in the reprs of arguments; the
omitted fields are added back. A stored message is one line of JSON, and then the body as text.
"""

from __future__ import annotations

import base64
from typing import Any

from celery_lanes.protocol.codec import OPT_NON_STR_KEYS, dumps, loads

#: Headers that the publisher sets: the lane keys, the [scope, number] by which the message is remembered as seen, and
#: the fields of its group (messages.Group).
LANE_KEYS = "lane_keys"
ONCE = "once"
GROUP = "lane_group"
#: It stops the first message of each of its lanes.
STOPS = "lane_stops"
#: Its keys whose lanes have a rate: key -> rate, such as "10/m".
RATES = "lane_rates"
#: Its keys that are limits, not lanes: key -> how many may run.
LIMITS = "lane_limits"
#: Set when the answer to a publish was lost: kombu may publish the same headers again.
UNCERTAIN = "lane_uncertain"
OF_PUBLISHER = (LANE_KEYS, ONCE, GROUP, STOPS, RATES, LIMITS, UNCERTAIN)
#: Precedes each message of a group (messages.Group) in its stored form: a message of a group that a later message
#: interrupts, and of one that none interrupts. JSON contains no control characters. A blank follows if a run of the
#: group may take later messages: to a release that does not know this, it is only a blank before JSON.
INTERRUPTIBLE, COLLECTED = b"\x1d", b"\x1e"
STEERED = COLLECTED + b" "
#: Header from the main process of the worker to the process that runs the message (delivery.py).
LANE = "lane"


def about(message_id: str) -> dict[str, Any]:
    """For `extra=` of a log line, where Celery's log lines about a task have its id too."""
    return {"data": {"id": message_id}}


#: A task message of protocol 2 as `task.delay()` makes it (celery.app.amqp.AMQP.as_task_v2).
_TASK_HEADERS: dict[str, Any] = {
    "lang": "py",
    "shadow": None,
    "eta": None,
    "expires": None,
    "group": None,
    "group_index": None,
    "retries": 0,
    "timelimit": [None, None],
    "parent_id": None,
    "argsrepr": "()",
    "kwargsrepr": "{}",
    "origin": None,
    "ignore_result": False,
    "replaced_task_nesting": 0,
    "stamped_headers": None,
    "stamps": {},
}
#: The content type that Celery uses by default.
JSON = "application/json"
_PROPERTIES: dict[str, Any] = {"delivery_mode": 2, "reply_to": None}
_NOT_STORED = {"delivery_tag", "delivery_info", "body_encoding", "priority", "correlation_id"}


def pack(message: dict[str, Any]) -> bytes:
    """Packs a message as kombu's `Channel._put` receives it, without its lane headers."""
    headers, properties = message["headers"], message["properties"]
    message_id = headers.get("id")
    known = {**_TASK_HEADERS, "root_id": message_id, "id": message_id} if "task" in headers and message_id else {}
    envelope: dict[str, Any] = {
        "headers": {k: v for k, v in headers.items() if k not in OF_PUBLISHER and not _same(known, k, v)}
    }
    kept = {k: v for k, v in properties.items() if k not in _NOT_STORED and not _same(_PROPERTIES, k, v)}
    if not message_id or properties.get("correlation_id") != message_id:
        kept["correlation_id"] = properties.get("correlation_id")
    if kept:
        envelope["properties"] = kept
    if (content := (message.get("content-type"), message.get("content-encoding"))) != (JSON, "utf-8"):
        envelope["content"] = content
    body, is_binary = _as_text(message["body"], properties.get("body_encoding"))
    if is_binary:
        envelope["binary"] = True
    return _line(envelope) + b"\n" + body


def _line(envelope: dict[str, Any]) -> bytes:
    try:
        return dumps(envelope, option=OPT_NON_STR_KEYS)
    except TypeError:  # half a surrogate pair in an argument, which Celery's repr does not escape, or no JSON at all
        headers = envelope["headers"]
        texts = {name: headers[name] for name in ("argsrepr", "kwargsrepr") if isinstance(headers.get(name), str)}
        escaped = {name: text.encode(errors="backslashreplace").decode() for name, text in texts.items()}
        return dumps({**envelope, "headers": {**headers, **escaped}}, option=OPT_NON_STR_KEYS)


def pack_task(task: str, argsrepr: str, body: bytes, **headers: str) -> bytes:
    """The stored form of a plain JSON task message, without building the message. `body` is in Celery's format."""
    return dumps({"headers": {"task": task, "argsrepr": argsrepr, **headers}}) + b"\n" + body


#: Texts of stored messages that many timers contain, as version 1 of use_texts. An app puts its own beside them.
TIMER_TEXTS = (
    (
        "",
        '{"headers":{"task":"',
        '","argsrepr":"',
        '"}}\n[[',
        ',{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]',
    ),
)


def pack_collected(stored: str | bytes, *, interrupts: bool, steers: bool) -> bytes | None:
    """The stored form of a message of a group. None: it cannot belong to one, because it contains a separator."""
    plain = stored.encode() if isinstance(stored, str) else stored
    if INTERRUPTIBLE in plain or COLLECTED in plain:
        return None
    return (INTERRUPTIBLE if interrupts else STEERED if steers else COLLECTED) + plain


def is_interruptible(stored: bytes) -> bool:
    return stored.startswith(INTERRUPTIBLE)


def is_steered(stored: bytes) -> bool:
    return stored.startswith(STEERED)


def split(stored: bytes) -> list[bytes]:
    """The stored forms of the messages of a group, the oldest first; of another message its own."""
    separator = stored[:1]
    return stored[1:].split(separator) if separator in (INTERRUPTIBLE, COLLECTED) else [stored]


def unpack(stored: bytes, *, message_id: str, queue: str, tag: str, lane: dict[str, Any]) -> dict[str, Any]:
    """The message as kombu's `Transport._deliver` expects it. Raises ValueError if `stored` is not a message."""
    line, newline, body = stored.partition(b"\n")
    envelope = loads(line)
    if not newline:
        return _foreign(envelope, queue=queue, tag=tag, lane=lane)
    headers = envelope["headers"]
    if lane["failed"]:  # Celery's backoff and monitors read the number of retries
        headers["retries"] = headers.get("retries", 0) + lane["failed"]
    known = {**_TASK_HEADERS, "id": message_id, "root_id": message_id} if "task" in headers else {}
    content_type, content_encoding = envelope.get("content", (JSON, "utf-8"))
    return {
        "body": body.decode(),
        "content-type": content_type,
        "content-encoding": content_encoding,
        "headers": {**known, **headers, LANE: lane},
        "properties": {
            **_PROPERTIES,
            "correlation_id": message_id,
            **envelope.get("properties", {}),
            **_delivery(queue, tag, lane),
            "body_encoding": "base64" if envelope.get("binary") else "utf-8",
        },
    }


def _foreign(message: Any, *, queue: str, tag: str, lane: dict[str, Any]) -> dict[str, Any]:
    """A whole message that stock kombu pushed onto the ready list. The turn script gave it a record."""
    if not isinstance(message, dict) or not isinstance(message.get("properties"), dict):
        raise ValueError("not a kombu message")
    message["headers"] = {**(message.get("headers") or {}), LANE: {**lane, "foreign": True}}
    message["properties"].update(_delivery(queue, tag, lane))
    return message


def _delivery(queue: str, tag: str, lane: dict[str, Any]) -> dict[str, Any]:
    again = bool(lane["failed"] or lane["died"])
    return {
        "delivery_tag": tag,
        "delivery_info": {"exchange": "", "routing_key": queue, "redelivered": again},
        "priority": 0,
    }


def _same(known: dict[str, Any], name: str, value: Any) -> bool:
    if isinstance(value, tuple):
        value = list(value)
    return name in known and known[name] == value and type(known[name]) is type(value)


def _as_text(body: Any, encoding: str | None) -> tuple[bytes, bool]:
    """The body as bytes, and True if it stays base64 because it is not text."""
    if (encoding or "utf-8").lower() == "utf-8":
        return (body.encode() if isinstance(body, str) else body), False
    plain = base64.b64decode(body)
    try:
        plain.decode()
    except UnicodeDecodeError:
        return (body.encode() if isinstance(body, str) else body), True
    return plain, False
