"""The JSON of updates: what orjson and json do not read is read in part.

Promises that a document of JSON is read whatever its depth and however long its numbers: where it is nested too deeply,
or a number has too many digits, a Cut stands instead, and the update that holds it is a CutUpdate. Raises ValueError
for what is not JSON.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

#: Telegram's updates have a dozen levels, and orjson writes 254.
MOST_LEVELS = 200
#: Python's own limit for a number to be read and written.
MOST_DIGITS = 4_300

#: Strings whole, so that no bracket or digit in one counts; brackets; whole numbers that are too long; and the quote of
#: a string that has no end.
_TOKEN = re.compile(
    rf'"(?:[^"\\]|\\.)*"|[\[\]{{}}]|(?<![\d.eE+-])-?[0-9]{{{MOST_DIGITS + 1},}}(?![\d.eE])|"', re.DOTALL
)
#: Not JSON, but read by json: no update can hold it by itself, unless in a string.
_CUT = "NaN"


class Cut(str):
    """Stands in an update for what was cut."""

    __slots__ = ()


class CutUpdate(dict[str, Any]):
    """Is buried: a handler must not take it for what was sent."""


def read(body: bytes) -> Any:
    """Raises ValueError. Half a surrogate pair is no JSON for orjson, and would be held by Telegram for ever."""
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
    """Of an update, or of an answer of the Bot API that holds some."""
    if not isinstance(document, dict):
        return document
    if "update_id" in document:
        return CutUpdate(document) if _is_cut(document) else document
    if isinstance(updates := document.get("result"), list):
        document["result"] = [_marked(update) for update in updates]
    return document


def _is_cut(value: Any) -> bool:
    """It has no more than MOST_LEVELS."""
    if isinstance(value, dict | list):
        return any(map(_is_cut, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Cut)


def _shortened(text: str) -> Iterator[str]:
    """The pieces of a text in which nothing is too deep or too long. Looks at brackets and numbers only."""
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
            raise ValueError("a string has no end")
        elif first != '"' and level <= MOST_LEVELS:
            yield text[kept_from : token.start()]
            yield _CUT
            kept_from = token.end()
    if level > MOST_LEVELS:
        raise ValueError("it ends in the middle")
    yield text[kept_from:]
