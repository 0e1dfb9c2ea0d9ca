"""The content of a bot's message, by method and parameters: what it sends, its options, and what an edit changes.

Pure, except dice. Has the fields that client libraries read. Files sent by URL are not fetched.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Any

from chatlanes_sandbox.simulator.calls.files import FileStore, photo_size
from chatlanes_sandbox.simulator.calls.markup import marked
from chatlanes_sandbox.simulator.calls.params import Params, RefusedError, decoded, is_true, listed, parsed, whole

#: Methods that send one file -> the parameter that names it.
FILE_METHODS = {
    "sendPhoto": "photo",
    "sendLivePhoto": "live_photo",
    "sendDocument": "document",
    "sendAnimation": "animation",
    "sendAudio": "audio",
    "sendVoice": "voice",
    "sendVideo": "video",
    "sendVideoNote": "video_note",
    "sendSticker": "sticker",
}
#: Characters, after parsing of entities.
LONGEST_CAPTION = 1024
MOST_OPTIONS = 12
#: The highest value of each kind of die.
DICE = {"🎲": 6, "🎯": 6, "🎳": 6, "🏀": 5, "⚽": 5, "🎰": 64}
#: Fields that client libraries require; parameters of the call replace these numbers.
_SQUARE = {"width": 320, "height": 240}
_FIELDS: dict[str, dict[str, Any]] = {
    "animation": {**_SQUARE, "duration": 1},
    "audio": {"duration": 1},
    "live_photo": {**_SQUARE, "duration": 1},
    "voice": {"duration": 1},
    "video": {**_SQUARE, "duration": 1},
    "video_note": {"length": 240, "duration": 1},
    "sticker": {"type": "regular", **_SQUARE, "is_animated": False, "is_video": False},
}
#: Texts of a call that are copied to the file.
_NAMES = {"audio": ("performer", "title"), "sticker": ("emoji",)}


def content_of(method: str, params: Params, files: FileStore) -> dict[str, Any]:
    """The fields of the message's content. Raises RefusedError."""
    if method == "sendMessage":
        return marked(params, "text")
    if method in FILE_METHODS:
        kind = FILE_METHODS[method]
        return {**file_shown(kind, params.get(kind), params, params, files), **captioned(params)}
    if method == "sendPaidMedia":
        return {**_paid_media(params, files), **captioned(params)}
    made = _OTHERS.get(method)
    return made(params) if made else {"text": f"({method})"}


def medium(item: dict[str, Any], params: Params, files: FileStore) -> dict[str, Any]:
    """The content that an InputMedia describes. Raises RefusedError."""
    kind = str(item.get("type"))
    if kind not in FILE_METHODS.values():
        raise RefusedError("Bad Request: can't parse InputMedia: type is not supported")
    return {**file_shown(kind, item.get("media"), item, params, files), **captioned(item)}


def captioned(params: Params) -> dict[str, Any]:
    """The caption with its entities; empty when there is none. Raises RefusedError."""
    shown = marked(params, "caption")
    if len(shown.get("caption", "")) > LONGEST_CAPTION:
        raise RefusedError("Bad Request: message caption is too long")
    return shown


def file_shown(kind: str, value: Any, about: Params, params: Params, files: FileStore) -> dict[str, Any]:
    """One file: uploaded (also as attach://…, which names one of `params`), by its file_id, or by URL. `about` has its
    size and duration. Raises RefusedError.
    """
    if isinstance(value, str) and value.startswith("attach://"):
        value = params.get(value.removeprefix("attach://"))
    if not value:
        raise RefusedError(f"Bad Request: there is no {kind.replace('_', ' ')} in the request")
    uploaded = value if isinstance(value, dict) else {"file_id": str(value), "file": str(value).rpartition("/")[2]}
    file_id = str(uploaded.get("file_id") or f"upload-{secrets.token_urlsafe(18)}")
    content = files.content_of(file_id)
    if kind == "photo":
        return {"photo": [photo_size(file_id, content)]}
    size = whole(uploaded, "bytes", len(content))
    file: dict[str, Any] = {"file_id": file_id, "file_unique_id": file_id[-16:], "file_size": size}
    if kind not in ("sticker", "voice", "video_note", "live_photo"):
        file["file_name"] = str(uploaded.get("file") or "file")
    for name, usual in _FIELDS.get(kind, {}).items():
        file[name] = whole(about, name, usual) if type(usual) is int else usual
    file |= {name: str(about[name]) for name in _NAMES.get(kind, ()) if about.get(name)}
    plain = {name: file[name] for name in ("file_id", "file_unique_id", "file_size", "file_name") if name in file}
    return {kind: file, **({"document": plain} if kind == "animation" else {})}


def _texts(params: Params, *names: str) -> dict[str, str]:
    return {name: str(params[name]) for name in names if params.get(name)}


def _numbers(params: Params, *names: str) -> dict[str, int]:
    return {name: whole(params, name, 0) for name in names if params.get(name)}


def _dice(params: Params) -> dict[str, Any]:
    emoji = str(params.get("emoji") or "🎲")
    if emoji not in DICE:
        raise RefusedError("Bad Request: DICE_EMOJI_INVALID")
    return {"dice": {"emoji": emoji, "value": random.randint(1, DICE[emoji])}}  # noqa: S311 - a toy


def _poll(params: Params) -> dict[str, Any]:
    options = [
        str(option.get("text", "")) if isinstance(option, dict) else str(option) for option in listed(params, "options")
    ]
    if not options:
        raise RefusedError("Bad Request: poll must have at least one answer option")
    if len(options) > MOST_OPTIONS:
        raise RefusedError(f"Bad Request: poll can't have more than {MOST_OPTIONS} options")
    correct = [whole({"at": at}, "at", 0) for at in listed(params, "correct_option_ids")]
    if "correct_option_id" in params:
        correct = [whole(params, "correct_option_id", 0)]
    return {
        "poll": {
            "id": str(secrets.randbits(62)),
            "question": str(params.get("question", "")),
            "options": [{"text": text, "voter_count": 0, "persistent_id": str(at)} for at, text in enumerate(options)],
            "total_voter_count": 0,
            "is_closed": is_true(params.get("is_closed")),
            "is_anonymous": is_true(params.get("is_anonymous", True)),
            "type": str(params.get("type") or "regular"),
            "allows_multiple_answers": is_true(params.get("allows_multiple_answers")),
            "allows_revoting": is_true(params.get("allows_revoting")),
            "members_only": is_true(params.get("members_only")),
            **({"correct_option_ids": correct} if correct else {}),
            **_texts(params, "explanation", "description"),
            **_numbers(params, "open_period", "close_date"),
        }
    }


def _place(params: Params) -> dict[str, float]:
    try:
        place = {name: float(params[name]) for name in ("latitude", "longitude")}
    except (KeyError, TypeError, ValueError):
        raise RefusedError("Bad Request: latitude and longitude must be numbers") from None
    return {**place, **_numbers(params, "live_period", "heading", "proximity_alert_radius")}


def _venue(params: Params) -> dict[str, Any]:
    place = _place(params)
    about = {"title": str(params.get("title", "")), "address": str(params.get("address", ""))}
    ids = _texts(params, "foursquare_id", "foursquare_type", "google_place_id", "google_place_type")
    return {"venue": {"location": place, **about, **ids}, "location": place}


def _contact(params: Params) -> dict[str, Any]:
    who = {"phone_number": str(params.get("phone_number", "")), "first_name": str(params.get("first_name", ""))}
    return {"contact": {**who, **_texts(params, "last_name", "vcard")}}


def _game(params: Params) -> dict[str, Any]:
    name = str(params.get("game_short_name", ""))
    return {"game": {"title": name, "description": "", "photo": [photo_size(f"game-{name}", b"")]}}


def _invoice(params: Params) -> dict[str, Any]:
    about = {name: str(params.get(name, "")) for name in ("title", "description", "start_parameter", "currency")}
    prices = [whole(price, "amount", 0) for price in listed(params, "prices") if isinstance(price, dict)]
    return {"invoice": {**about, "total_amount": sum(prices)}}


def _checklist(params: Params) -> dict[str, Any]:
    asked = decoded(params.get("checklist"))
    tasks = [
        {"id": whole(task, "id", 0), **marked({"text": "?", **task}, "text")}
        for task in listed(asked, "tasks")
        if isinstance(task, dict)
    ]
    return {"checklist": {"title": str(asked.get("title", "")), "tasks": tasks}}


def _paid_media(params: Params, files: FileStore) -> dict[str, Any]:
    items = [item for item in listed(params, "media") if isinstance(item, dict)]
    shown = []
    for item in items:
        kind = str(item.get("type"))
        held = medium(item, params, files)
        shown.append({"type": kind, kind: held[kind]})
    return {"paid_media": {"star_count": whole(params, "star_count", 1), "paid_media": shown}}


def _rich(params: Params) -> dict[str, Any]:
    """Its source as one paragraph; blocks are repeated as they were given."""
    asked = decoded(params.get("rich_message"))
    source = str(asked.get("html") or asked.get("markdown") or "")
    blocks = [block for block in listed(asked, "blocks") if isinstance(block, dict)]
    return {"rich_message": {"blocks": blocks or [{"type": "paragraph", "text": source}]}}


_OTHERS: dict[str, Callable[[Params], dict[str, Any]]] = {
    "sendDice": _dice,
    "sendPoll": _poll,
    "sendLocation": lambda params: {"location": _place(params)},
    "sendVenue": _venue,
    "sendContact": _contact,
    "sendGame": _game,
    "sendInvoice": _invoice,
    "sendChecklist": _checklist,
    "sendRichMessage": _rich,
}


# ── options: buttons, topic, and other parameters apart from the content ──

#: Parameter -> the field that is set if it is true.
_FLAGS = {
    "protect_content": "has_protected_content",
    "show_caption_above_media": "show_caption_above_media",
    "has_spoiler": "has_media_spoiler",
}
#: Parameter -> the field with the same value.
_REPEATED = {"message_effect_id": "effect_id", "business_connection_id": "business_connection_id"}
#: Bytes of callback_data.
LARGEST_BUTTON = 64
#: Fields of a button that do nothing when it is pressed.
_LOOKS = frozenset({"text", "style", "icon_custom_emoji_id"})


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
    """The rows of buttons; empty when there are none. Raises RefusedError."""
    given = params.get("reply_markup")
    if given in (None, "", "null"):
        return []
    markup = parsed(given)
    if markup is None:
        raise RefusedError("Bad Request: can't parse reply keyboard markup JSON object")
    if not isinstance(markup, dict):
        raise RefusedError("Bad Request: object expected as reply markup")
    rows = markup.get("inline_keyboard") or []
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise RefusedError(
            'Bad Request: field "inline_keyboard" of the InlineKeyboardMarkup must be an Array of Arrays'
        )
    for row in rows:
        for button in row:
            _check_button(button)
    return rows


def _check_button(button: Any) -> None:
    """Raises RefusedError."""
    cannot = "Bad Request: can't parse inline keyboard button"
    if not isinstance(button, dict):
        raise RefusedError(f"{cannot}: InlineKeyboardButton must be an Object")
    if not isinstance(button.get("text"), str):
        raise RefusedError(f'{cannot}: Can\'t find field "text"')
    acts = {name for name, value in button.items() if value is not None and name not in _LOOKS}
    data = str(button.get("callback_data") or "")
    if not acts or (acts == {"callback_data"} and not data):
        raise RefusedError(f"{cannot}: Text buttons are unallowed in the inline keyboard")
    if len(data.encode(errors="replace")) > LARGEST_BUTTON:
        raise RefusedError("Bad Request: BUTTON_DATA_INVALID")


# ── edits ──

#: Fields of a message that are not its content.
HEAD = (
    *("message_id", "ephemeral_message_id", "from", "receiver_user", "chat", "date", "edit_date"),
    *("reply_to_message", "reply_markup", "quote"),
)


def changed(raw: dict[str, Any], method: str, params: Params, files: FileStore) -> dict[str, Any]:
    """`raw` after `method`, the whole message, with no buttons but those of the edit. Raises RefusedError.

    The caller has checked that it may be edited.
    """
    edited = _content_changed(raw, method, params, files)
    rows = inline_keyboard(params)
    kept = {name: value for name, value in edited.items() if name != "reply_markup"}
    return {**kept, **({"reply_markup": {"inline_keyboard": rows}} if rows else {})}


def _content_changed(raw: dict[str, Any], method: str, params: Params, files: FileStore) -> dict[str, Any]:
    match method:
        case "editMessageText":
            sent = "sendRichMessage" if "rich_message" in params else "sendMessage"
            return {**without(raw, "text", "entities", "rich_message"), **content_of(sent, params, files)}
        case "editMessageCaption":
            return {**without(raw, "caption", "caption_entities"), **captioned(params)}
        case "editMessageMedia":
            kept = {name: value for name, value in raw.items() if name in HEAD}
            return {**kept, **medium(decoded(params.get("media")), params, files)}
        case "editMessageLiveLocation":
            return {**raw, **content_of("sendLocation", params, files)}
        case "editMessageChecklist":
            return {**raw, **content_of("sendChecklist", params, files)}
    return raw


def without(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in names}
