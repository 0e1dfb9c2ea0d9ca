"""The names of the Bot API's methods, from bot_api.json (`make bot-api`). Upper and lower case are the same."""

import json
from collections.abc import Iterable
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


def needs(method: str, parameter: str) -> bool:
    """True if no call of the method may leave the parameter out."""
    return parameter in _PARAMETERS.get(method.lower(), ())


def check_parameters(method: str, given: Iterable[str]) -> None:
    """For a call that is made later. Raises ValueError if the method has no such parameter, or needs another one."""
    known = _PARAMETERS.get(method.lower())
    if known is None:  # a former name
        return
    names = [name.removesuffix("?") for name in known]
    given = set(given)
    for name in sorted(given - set(names)):
        near = get_close_matches(name, names, n=1)
        likely = f"; did you mean {near[0]}?" if near else ": a handler can pass a newer one"
        raise ValueError(f"{method} has no parameter {name} in the Bot API {VERSION}{likely}")
    if missing := [name for name in known if not name.endswith("?") and name not in given]:
        raise ValueError(f"{method} needs {' and '.join(missing)}: pass it as a parameter")


def check_method(name: str) -> None:
    """For calls that are made later, and often. Raises ValueError for an unknown method."""
    if name.lower() not in METHODS:
        near = get_close_matches(name.lower(), METHODS, n=1)
        likely = f"; did you mean {METHODS[near[0]]}?" if near else ": a handler can call a newer method"
        raise ValueError(f"{name} is not a method of the Bot API {VERSION}{likely}")
