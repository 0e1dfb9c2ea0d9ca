"""Publishing to a lane queue: a kombu message becomes one row of an append.

Refuses messages that a lane cannot keep in order: see `row`.
"""

from __future__ import annotations

from typing import Any

from chatlanes.lanes.errors import PublishRefused
from chatlanes.lanes.protocol import envelope
from chatlanes.lanes.protocol.commands import NewMessage


def headers(keys: list[str], *, once: tuple[str, int] | None = None) -> dict[str, Any]:
    """Headers for a message that is ordered by `keys` (none: it runs at once, beside everything).

    `once` is a scope and a number by which a second publish within 48 h is known and dropped: `("bot 7", update_id)`.
    Use: `task.apply_async(args, queue="orders.0", headers=lanes.headers(["customer:9"]))`.
    """
    return {envelope.LANE_KEYS: keys, envelope.ONCE: list(once) if once else None}


def check_ordinary(queue: str, message: dict[str, Any]) -> None:
    """A message with lane keys on an ordinary queue would silently lose its order: raises PublishRefused."""
    if envelope.LANE_KEYS in (message.get("headers") or {}):
        raise PublishRefused(
            f"{queue!r} is an ordinary queue, and this message has lane keys. Declare the queue as a lane queue: "
            f"Queue({queue!r}, queue_arguments=lanes.QUEUE_ARGUMENTS)"
        )


def row(queue: str, message: dict[str, Any]) -> NewMessage:
    """What to append for a message. Raises PublishRefused for no lane keys, and for an eta or countdown."""
    said = message.get("headers") or {}
    if envelope.LANE_KEYS not in said:
        raise PublishRefused(
            f"{queue!r} is a lane queue: say what the message is ordered by, headers=lanes.headers([…]); "
            "an empty list means by nothing"
        )
    if said.get("eta"):
        raise PublishRefused(
            "eta and countdown are refused on a lane queue: a later message would overtake this one or wait for it. "
            "Publish it when it is due, or use an ordinary queue"
        )
    once = said.get(envelope.ONCE)
    return NewMessage(
        id=said.get("id") or message["properties"]["delivery_tag"],
        queue=queue,
        stored=envelope.pack(message),
        lanes=said[envelope.LANE_KEYS],
        once=(once[0], once[1]) if once else None,
    )
