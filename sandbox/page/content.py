"""What a message of the bot holds, by the method that sent it and its parameters. Pure, but for dice.

Promises the fields that a client library reads out of the answer. Does not fetch what is sent by URL.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Any

from sandbox.page.markup import marked
from sandbox.page.people import photo_size
from sandbox.simulator.chats import Params, RefusedError, listed
from sandbox.simulator.files import Files

#: Methods that send one file -> the parameter that names it.
FILE_METHODS = {
    "sendPhoto": "photo",
    "sendDocument": "document",
    "sendAnimation": "animation",
    "sendAudio": "audio",
    "sendVoice": "voice",
    "sendVideo": "video",
    "sendVideoNote": "video_note",
    "sendSticker": "sticker",
}
#: What a die of each kind may show.
DICE = {"🎲": 6, "🎯": 6, "🎳": 6, "🏀": 5, "⚽": 5, "🎰": 64}
#: What client libraries insist on.
_SQUARE = {"width": 320, "height": 240}
_FIELDS: dict[str, dict[str, Any]] = {
    "animation": {**_SQUARE, "duration": 1},
    "audio": {"duration": 1},
    "voice": {"duration": 1},
    "video": {**_SQUARE, "duration": 1},
    "video_note": {"length": 240, "duration": 1},
    "sticker": {"type": "regular", **_SQUARE, "is_animated": False, "is_video": False},
}


def content_of(method: str, params: Params, files: Files) -> dict[str, Any]:
    """The fields of the message that tell what it holds. Raises RefusedError."""
    if method == "sendMessage":
        return marked(params, "text")
    if method in FILE_METHODS:
        kind = FILE_METHODS[method]
        return {**file_shown(kind, params.get(kind), params, files), **marked(params, "caption")}
    made = _OTHERS.get(method)
    if made:
        return made(params)
    return {"text": f"({method})"}


def file_shown(kind: str, value: Any, params: Params, files: Files) -> dict[str, Any]:
    """One file: uploaded (also as attach://…), by its file_id, or by URL. Raises RefusedError."""
    if isinstance(value, str) and value.startswith("attach://"):
        value = params.get(value.removeprefix("attach://"))
    if not value:
        raise RefusedError(f"Bad Request: there is no {kind.replace('_', ' ')} in the request")
    if isinstance(value, dict):
        file_id, name = value["file_id"], value.get("file") or "file"
    else:
        file_id, name = str(value), str(value).rpartition("/")[2]
    content = files.content_of(file_id)
    if kind == "photo":
        return {"photo": [photo_size(file_id, content)]}
    file = {"file_id": file_id, "file_unique_id": file_id[-16:], "file_size": len(content)}
    if kind not in ("sticker", "voice", "video_note"):
        file["file_name"] = name
    made = {kind: {**file, **_FIELDS.get(kind, {})}}
    return {**made, "document": {**file}} if kind == "animation" else made


def _given(params: Params, *names: str) -> dict[str, Any]:
    return {name: params[name] for name in names if name in params}


def _dice(params: Params) -> dict[str, Any]:
    emoji = str(params.get("emoji") or "🎲")
    if emoji not in DICE:
        raise RefusedError("Bad Request: DICE_EMOJI_INVALID")
    return {"dice": {"emoji": emoji, "value": random.randint(1, DICE[emoji])}}  # noqa: S311 - a toy


def _poll(params: Params) -> dict[str, Any]:
    options = [
        option.get("text", "") if isinstance(option, dict) else str(option) for option in listed(params, "options")
    ]
    if not options:
        raise RefusedError("Bad Request: poll must have at least 1 option")
    return {
        "poll": {
            "id": str(secrets.randbits(62)),
            "question": str(params.get("question", "")),
            "options": [{"text": text, "voter_count": 0, "persistent_id": str(at)} for at, text in enumerate(options)],
            "total_voter_count": 0,
            "is_closed": False,
            "is_anonymous": True,
            "type": str(params.get("type", "regular")),
            "allows_multiple_answers": False,
            "allows_revoting": False,
        }
    }


def _place(params: Params) -> dict[str, float]:
    try:
        return {name: float(params[name]) for name in ("latitude", "longitude")}
    except (KeyError, TypeError, ValueError):
        raise RefusedError("Bad Request: latitude and longitude must be numbers") from None


def _venue(params: Params) -> dict[str, Any]:
    place = _place(params)
    return {"venue": {"location": place, **_given(params, "title", "address")}, "location": place}


_OTHERS: dict[str, Callable[[Params], dict[str, Any]]] = {
    "sendDice": _dice,
    "sendPoll": _poll,
    "sendLocation": lambda params: {"location": _place(params)},
    "sendVenue": _venue,
    "sendContact": lambda params: {"contact": _given(params, "phone_number", "first_name", "last_name")},
}
