"""How many messages a call puts into a chat, as Telegram's limits count them. Pure."""

import json
from typing import Any

#: Methods with a chat_id that put no message there.
_NONE = frozenset({"sendchataction"})
#: Methods that send as many messages as this parameter names.
_SEVERAL = {"sendmediagroup": "media", "copymessages": "message_ids", "forwardmessages": "message_ids"}


def messages_of(method: str, params: dict[str, Any]) -> int:
    """0 for a call that only reads, or that names no chat. What changes a message counts as one too."""
    name = method.lower()
    if params.get("chat_id") is None or name.startswith("get") or name in _NONE:
        return 0
    return max(1, _length(params.get(_SEVERAL.get(name, ""))))


def _length(several: Any) -> int:
    """Of a list, which frameworks give as its JSON."""
    if isinstance(several, str) and several.startswith("["):
        try:
            several = json.loads(several)
        except ValueError:
            return 1
    return len(several) if isinstance(several, list | tuple) else 1
