"""Updates: parsing, keys and queues, and the append to lanes."""

from chatlanes.updates.parsing import (
    QUESTION_DATA,
    ParsedUpdate,
    is_stale,
    number,
    object_id,
    parse,
    part,
    text_id,
    text_of,
)
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
