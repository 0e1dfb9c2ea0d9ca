"""The message after an edit. Pure.

Returns the whole message, as Telegram does. Whether it may be edited is decided elsewhere.
"""

from __future__ import annotations

from typing import Any

from chatlanes.sandbox.simulator.calls.content.kinds import content_of, medium
from chatlanes.sandbox.simulator.calls.content.markup import marked
from chatlanes.sandbox.simulator.calls.content.send_options import inline_keyboard
from chatlanes.sandbox.simulator.calls.files import FileStore
from chatlanes.sandbox.simulator.calls.params import Params, decoded

#: Fields of a message that are not its content.
HEAD = ("message_id", "from", "chat", "date", "edit_date", "reply_to_message", "reply_markup", "quote")


def changed(raw: dict[str, Any], method: str, params: Params, files: FileStore) -> dict[str, Any]:
    """`raw` after `method`, with no buttons but those of the edit. Raises RefusedError."""
    edited = _content_changed(raw, method, params, files)
    rows = inline_keyboard(params)
    kept = {name: value for name, value in edited.items() if name != "reply_markup"}
    return {**kept, **({"reply_markup": {"inline_keyboard": rows}} if rows else {})}


def _content_changed(raw: dict[str, Any], method: str, params: Params, files: FileStore) -> dict[str, Any]:
    match method:
        case "editMessageText":
            return {**_without(raw, "text", "entities"), **content_of("sendMessage", params, files)}
        case "editMessageCaption":
            return {**_without(raw, "caption", "caption_entities"), **marked(params, "caption")}
        case "editMessageMedia":
            kept = {name: value for name, value in raw.items() if name in HEAD}
            return {**kept, **medium(decoded(params.get("media")), params, files)}
        case "editMessageLiveLocation":
            return {**raw, **content_of("sendLocation", params, files)}
        case "editMessageChecklist":
            return {**raw, **content_of("sendChecklist", params, files)}
    return raw


def _without(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in names}
