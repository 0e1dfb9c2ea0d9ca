"""The options of a sent message: buttons, topic, and other parameters apart from the content. Pure."""

from __future__ import annotations

from typing import Any

from chatlanes.sandbox.simulator.calls.params import Params, decoded, is_true, whole

#: Parameter -> the field that is set if it is true.
_FLAGS = {
    "protect_content": "has_protected_content",
    "show_caption_above_media": "show_caption_above_media",
    "has_spoiler": "has_media_spoiler",
}
#: Parameter -> the field with the same value.
_REPEATED = {"message_effect_id": "effect_id", "business_connection_id": "business_connection_id"}


def options_of(params: Params) -> dict[str, Any]:
    """Fields of the message. Keyboards under the input field are not among them, as at Telegram."""
    shown: dict[str, Any] = {field: True for name, field in _FLAGS.items() if is_true(params.get(name))}
    shown |= {field: str(params[name]) for name, field in _REPEATED.items() if params.get(name)}
    if thread := whole(params, "message_thread_id", 0):
        shown |= {"message_thread_id": thread, "is_topic_message": True}
    if preview := decoded(params.get("link_preview_options")):
        shown["link_preview_options"] = preview
    if rows := inline_keyboard(params):
        shown["reply_markup"] = {"inline_keyboard": rows}
    return shown


def inline_keyboard(params: Params) -> list[list[dict[str, Any]]]:
    """The rows of buttons; empty when there are none."""
    rows = decoded(params.get("reply_markup")).get("inline_keyboard")
    rows = rows if isinstance(rows, list) else []
    return [[button for button in row if isinstance(button, dict)] for row in rows if isinstance(row, list)]
