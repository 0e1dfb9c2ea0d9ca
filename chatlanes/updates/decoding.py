"""Decodes the JSON of updates, also where orjson and json cannot.

Any JSON document is read, whatever its depth and the length of its numbers. A value that is nested too deeply, or a
number with too many digits, is replaced by a Cut, and the update that holds it becomes a CutUpdate. Raises ValueError
for malformed JSON.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

#: Telegram's updates have about a dozen levels; orjson can write 254.
MOST_LEVELS = 200
#: Python's limit for converting between int and str.
MOST_DIGITS = 4_300

#: Matches whole strings (so that brackets and digits in them do not count), brackets, integers that are too long, and
#: the opening quote of an unterminated string.
_TOKEN = re.compile(
    rf'"(?:[^"\\]|\\.)*"|[\[\]{{}}]|(?<![\d.eE+-])-?[0-9]{{{MOST_DIGITS + 1},}}(?![\d.eE])|"', re.DOTALL
)
#: Placeholder for a cut value. Not valid JSON, though `json` reads it, so an update can contain it only in a string.
_CUT = "NaN"


class Cut(str):
    """Replaces a value that was cut from an update."""

    __slots__ = ()


class CutUpdate(dict[str, Any]):
    """An update with cut values. It is buried, because a handler must not see incomplete content."""


def read(body: bytes) -> Any:
    """Decode JSON. Raises ValueError.

    orjson rejects half a surrogate pair; without the fallback, Telegram would resend such an update indefinitely.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        pass
    text = "".join(_shortened(body.decode("utf-8", "surrogatepass")))
    return _marked(json.loads(text, parse_constant=lambda _: Cut("(nested too deeply, or a number too long)")))


def _marked(document: Any) -> Any:
    """Turn updates with cut values into CutUpdates: the document itself, or those in a Bot API response."""
    if not isinstance(document, dict):
        return document
    if "update_id" in document:
        return CutUpdate(document) if _is_cut(document) else document
    if isinstance(updates := document.get("result"), list):
        document["result"] = [_marked(update) for update in updates]
    return document


def _is_cut(value: Any) -> bool:
    """True if the value contains a Cut. Recursive: the value has at most MOST_LEVELS levels."""
    if isinstance(value, dict | list):
        return any(map(_is_cut, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Cut)


def _shortened(text: str) -> Iterator[str]:
    """The pieces of the text with everything too deep or too long replaced. Looks only at brackets and numbers."""
    level, kept_from = 0, 0
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in "[{":
            level += 1
            if level == MOST_LEVELS + 1:
                yield text[kept_from : token.start()]
        elif first in "]}":
            level -= 1
            if level == MOST_LEVELS:
                yield _CUT
                kept_from = token.end()
        elif token[0] == '"':
            raise ValueError("unterminated string")
        elif first != '"' and level <= MOST_LEVELS:
            yield text[kept_from : token.start()]
            yield _CUT
            kept_from = token.end()
    if level > MOST_LEVELS:
        raise ValueError("unexpected end of the document")
    yield text[kept_from:]
