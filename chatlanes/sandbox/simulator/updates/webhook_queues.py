"""The queue of the public server that an update passes on its way to a webhook. Pure.

Order holds only inside a queue.
"""

from typing import Any

#: Messages, edits and posts of a chat share one queue.
MESSAGES = frozenset({"message", "edited_message", "channel_post", "edited_channel_post"})
#: These share one queue of their user.
OF_USER = frozenset({"business_connection", "inline_query", "chosen_inline_result", "chat_member", "chat_join_request"})
#: Each of these has a queue of its own for each user.
OWN_OF_USER = frozenset(
    {"callback_query", "shipping_query", "pre_checkout_query", "purchased_paid_media", "managed_bot", "subscription"}
)

Queue = tuple[str, Any]


def queue_of(update: Any) -> Queue:
    """The name of the queue. Any JSON value has one, also if it is not an update."""
    fields = update if isinstance(update, dict) else {}
    kind = next((field for field in fields if field != "update_id"), "")
    event = fields.get(kind)
    event = event if isinstance(event, dict) else {}
    if kind in MESSAGES:
        return "messages", _id(event, "chat")
    if kind in OF_USER:
        return "user", _id(event, "from", "user")
    if kind in OWN_OF_USER:
        return kind, _id(event, "from", "user")
    if kind in ("poll", "poll_answer"):
        return "poll", event.get("id") if kind == "poll" else event.get("poll_id")
    return kind, _id(event, "chat", "from", "user")


def _id(event: dict[str, Any], *names: str) -> Any:
    """The id of the first of these fields that is present."""
    return next((event[name].get("id") for name in names if isinstance(event.get(name), dict)), None)
