"""Updates: parsing, keys and queues, and the append to lanes."""

from chatlanes.updates.parsing import ParsedUpdate, is_stale, number, object_id, parse, part, text_id, text_of
from chatlanes.updates.routing import (
    ORDERS,
    WHOLE_BOT,
    KeysError,
    by_chat,
    by_topic,
    by_user,
    chat_of,
    check_order_by,
    copy_of,
    is_express,
    keys_of,
    queue_of,
)

__all__ = [
    "ORDERS",
    "WHOLE_BOT",
    "KeysError",
    "ParsedUpdate",
    "by_chat",
    "by_topic",
    "by_user",
    "chat_of",
    "check_order_by",
    "copy_of",
    "is_express",
    "is_stale",
    "keys_of",
    "number",
    "object_id",
    "parse",
    "part",
    "queue_of",
    "text_id",
    "text_of",
]
