"""The names of the Bot API's methods, from bot_api.json (`make bot-api`). Upper and lower case are the same."""

import json
from difflib import get_close_matches
from pathlib import Path

_BOT_API = json.loads(Path(__file__).with_name("bot_api.json").read_bytes())
VERSION: str = _BOT_API["version"]

#: Former names, which Telegram's server still accepts.
_FORMER = ("getChatMembersCount", "kickChatMember", "setStickerSetThumb")

#: Lower case -> the documentation's spelling.
METHODS: dict[str, str] = {name.lower(): name for name in (*_BOT_API["methods"], *_FORMER)}

_PARAMETERS: dict[str, list[str]] = {name.lower(): names for name, names in _BOT_API["methods"].items()}
del _BOT_API


def takes(method: str, parameter: str) -> bool:
    """True if the method has this parameter in this version; Telegram ignores any other."""
    known = _PARAMETERS.get(method.lower(), ())
    return parameter in known or f"{parameter}?" in known  # optional ones have a question mark


def check_method(name: str) -> None:
    """For calls that are made later, and often. Raises ValueError for an unknown method."""
    if name.lower() not in METHODS:
        near = get_close_matches(name.lower(), METHODS, n=1)
        likely = f"; did you mean {METHODS[near[0]]}?" if near else ": a handler can call a newer method"
        raise ValueError(f"{name} is not a method of the Bot API {VERSION}{likely}")
