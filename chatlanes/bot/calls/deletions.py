"""The messages that a call deletes, as the journal of a run that may be interrupted names them.

The journal has no parameters of calls. Here the name of a deletion is followed by its chat, or business connection, and
the ids of its messages, so that the next run knows which messages of the interrupted one are deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from chatlanes.telegram.client import Prepared

#: A method that deletes messages, in lower case -> the parameter that says where.
_WHERE = {
    "deletemessage": "chat_id",
    "deletemessages": "chat_id",
    "deletebusinessmessages": "business_connection_id",
}
_NAME = re.compile(r"[^\s:]+")

#: The chat or business connection of a message, and its id.
Place = tuple[str, str]


def suffix(call: Prepared) -> str:
    """`:<where>:<ids>` of a call that deletes messages; empty for any other."""
    field = _WHERE.get(call.method.lower())
    if field is None:
        return ""
    data = call.request.data
    params = json.loads(data) if isinstance(data, bytes) else data
    where = str(params.get(field, ""))
    ids = re.findall(r"\d+", str(params.get("message_ids", params.get("message_id"))))
    return f":{where}:{','.join(ids)}" if ids and _NAME.fullmatch(where) else ""


def deleted(names: Iterable[str]) -> set[Place]:
    """The messages that calls with these names in the journal delete."""
    parts = (name.split(":") for name in names)
    return {(each[2], number) for each in parts if len(each) == 4 for number in each[3].split(",")}


def places(result: Any) -> set[Place]:
    """The messages in the result of a call: one message, or a list of them. Empty if it has none."""
    found = result if isinstance(result, list) else [result]
    return {_place(each) for each in found if isinstance(each, dict) and "message_id" in each and "chat" in each}


def _place(message: dict[str, Any]) -> Place:
    return str(message.get("business_connection_id") or message["chat"]["id"]), str(message["message_id"])
