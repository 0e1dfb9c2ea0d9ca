"""Splits a text into messages of at most 4,096 UTF-16 units, as Telegram counts. Pure.

The pieces joined are the text, except that pieces without visible characters are dropped. The first pieces do not
change while text is added at the end. A split prefers the end of a paragraph, line, sentence and word, and never
divides a surrogate pair; an entity that is too long is divided with the text. In a parse mode, no split is inside a
tag, an escape or a link, and formatting that is open at a split is closed there and opened again in the next message.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

LIMIT = 4096

#: Ends of paragraphs, lines, sentences and words. The separator belongs to the piece before it.
BOUNDARIES = tuple(map(re.compile, (r"\n\s*\n", r"\n", r"[.!?…。！？]+[)\"'»”]*(?:\s|(?<=[。！？]))", r"\s")))

#: True if a split is allowed at this index of the text.
Allowed = Callable[[int], bool]


class TextPiece(NamedTuple):
    """The content of one message. `entities` as in the Bot API; None: not given."""

    text: str
    entities: list[dict[str, Any]] | None = None
    parse_mode: str | None = None

    @property
    def is_plain(self) -> bool:
        return not self.entities and self.parse_mode is None


def units(text: str) -> int:
    """The length in UTF-16 units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def split(text: str, limit: int = LIMIT) -> list[TextPiece]:
    """Split a text without formatting."""
    return [TextPiece(text[start:end]) for start, end in _ranges(text, limit, lambda index: True)]


def split_entities(text: str, entities: Sequence[dict[str, Any]], limit: int = LIMIT) -> list[TextPiece]:
    """Split a text with entities, if possible between two of them."""
    places = [0, *accumulate(units(character) for character in text)]  # index in the text -> offset in units
    inside = [
        range(bisect_left(places, each["offset"]) + 1, bisect_left(places, each["offset"] + each["length"]))
        for each in entities
    ]
    ranges = _ranges(text, limit, lambda index: not any(index in each for each in inside))
    return [TextPiece(text[start:end], _within(entities, places[start], places[end])) for start, end in ranges]


def end_of_piece(text: str, start: int, limit: int, allowed: Allowed) -> int:
    """The index at which the piece that begins at `start` ends. `start` + 1 at least."""
    end = _longest(text, start, limit)
    if end == len(text):
        return end
    window, size = text[start:end], end - start
    for may, least in (
        (allowed, size // 2),
        (allowed, size // 4),
        (lambda index: True, size // 2),
        (lambda index: True, 1),
    ):
        for boundary in BOUNDARIES:
            ends = (match.end() for match in boundary.finditer(window))
            found = [place for place in ends if place >= least and may(start + place)]
            if found:
                return start + found[-1]
        if may(end):
            return end
    return end


def _longest(text: str, start: int, limit: int) -> int:
    """The largest end of a piece that is not longer than `limit`. A lone half of a pair counts as one unit."""
    end = min(len(text), start + limit)
    while (excess := units(text[start:end]) - limit) > 0:
        end -= (excess + 1) // 2
    return max(end, start + 1)


def _ranges(text: str, limit: int, allowed: Allowed) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = end_of_piece(text, start, limit, allowed)
        if not text[start:end].isspace():
            yield start, end
        start = end


def _within(entities: Sequence[dict[str, Any]], start: int, end: int) -> list[dict[str, Any]]:
    found = []
    for each in entities:
        first, last = max(each["offset"], start), min(each["offset"] + each["length"], end)
        if first < last:
            found.append({**each, "offset": first - start, "length": last - first})
    return found


_HTML = re.compile(
    r"<tg-emoji\b[^>]*>[^<]*</tg-emoji\s*>|<tg-time\b[^>]*>[^<]*</tg-time\s*>|<(?P<close>/?)(?P<tag>[\w-]+)[^>]*>"
    r"|&#?\w{1,10};",
    re.IGNORECASE,
)
_LINK = r"!?\[(?:\\.|[^\]\\])*\]\((?:\\.|[^)\\])*\)"
_MARKDOWN_V2 = re.compile(
    rf"\\.|(?P<fence>```(?:[\w+#.-]*\n)?)|(?P<mark>`|__|\|\||[*_~])|{_LINK}|^(?:\*\*)?>",
    re.DOTALL | re.MULTILINE,
)
_MARKDOWN = re.compile(rf"\\[_*`\[]|(?P<fence>```(?:[\w+#.-]*\n)?)|(?P<mark>`|[*_])|{_LINK}", re.DOTALL)
_QUOTE = re.compile(r"(?:\*\*)?>")


class Open(NamedTuple):
    """Formatting that is open at a place: its marks at the beginning and at the end."""

    name: str
    begin: str
    end: str


Scan = Callable[[str, list[Open], re.Match[str]], None]


def split_markup(text: str, parse_mode: str, limit: int = LIMIT) -> list[TextPiece]:
    """Split a text in this parse mode; an unknown one is split as if it had no markup."""
    if units(text) <= limit:
        return [TextPiece(text, None, parse_mode)] if text.strip() else []
    pattern, note = _LANGUAGES.get(parse_mode.lower(), (None, _html))
    tokens = [] if pattern is None else list(_tokens(pattern, text))
    inside = {index for token in tokens for index in range(token.start() + 1, token.end())}
    pieces, start, opened = [], 0, list[Open]()
    while start < len(text):
        begin = "".join(each.begin for each in opened)
        end, still_open, room = start, opened, limit - units(begin)
        while room > 0:
            end = _outside(inside, end_of_piece(text, start, room, lambda index: index not in inside))
            if end == start:  # the next token does not fit
                room = 0
                break
            still_open = _opened(text, start, end, opened, tokens, note)
            excess = units(begin + text[start:end] + _closing(still_open)) - limit
            if excess <= 0:
                break
            room = min(room - excess, units(text[start:end]) - 1)
        if room <= 0:  # the marks alone are too long: the piece is sent without them
            begin, still_open = "", []
            end = end_of_piece(text, start, limit, lambda index: index not in inside)
        if _is_visible(text, start, end, tokens):
            pieces.append(TextPiece(begin + text[start:end] + _closing(still_open), None, parse_mode))
        start, opened = end, still_open
    return pieces


def _is_visible(text: str, start: int, end: int, tokens: list[re.Match[str]]) -> bool:
    """True if there is more than blanks and marks."""
    for token in tokens:
        if start <= token.start() and token.end() <= end and any(token.groupdict().values()):  # a tag or another mark
            if text[start : token.start()].strip():
                return True
            start = token.end()
    return bool(text[start:end].strip())


def _outside(inside: set[int], end: int) -> int:
    """The same, or the beginning of the token that it is in."""
    while end in inside:
        end -= 1
    return end


def _tokens(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """The tokens. In code, only its end and escapes count; the pattern cannot express that."""
    found, place, code = [], 0, ""
    while match := pattern.search(text, place):
        mark = match.groupdict().get("fence") or match.groupdict().get("mark") or ""
        if code and mark and not mark.startswith(code):
            place = match.start() + 1
            continue
        if mark.startswith("`"):
            code = "" if code else "```" if mark.startswith("```") else "`"
        found.append(match)
        place = match.end()
    return found


def _opened(text: str, start: int, end: int, opened: list[Open], tokens: list[re.Match[str]], note: Scan) -> list[Open]:
    """The formatting that is open at `end`, if `opened` is open at `start`."""
    now = [each for each in opened if each.name != ">"]
    for token in tokens:
        if start <= token.start() and token.end() <= end:
            note(text, now, token)
    line_start = text.rfind("\n", 0, end) + 1
    if note is _markdown and line_start < end and _QUOTE.match(text, line_start):
        now.insert(0, Open(">", ">", ""))
    return now


def _closing(opened: list[Open]) -> str:
    return "".join(each.end for each in reversed(opened))


def _html(text: str, opened: list[Open], token: re.Match[str]) -> None:
    name = (token["tag"] or "").lower()
    if not name:
        return
    if not token["close"]:
        opened.append(Open(name, token[0], f"</{name}>"))
    elif any(each.name == name for each in opened):
        while opened.pop().name != name:
            pass


def _markdown(text: str, opened: list[Open], token: re.Match[str]) -> None:
    mark = token["fence"] or token["mark"]
    if not mark:
        return
    name = "```" if token["fence"] else mark
    if any(each.name == name for each in opened):
        while opened.pop().name != name:
            pass
    elif name == "||" and text[token.end() : token.end() + 1].strip() == "":
        pass  # the end of an expandable quote
    elif name == "```":
        opened.append(Open(name, mark, "\n```" if mark.endswith("\n") else "```"))
    else:
        opened.append(Open(name, mark, mark))


_LANGUAGES: dict[str, tuple[re.Pattern[str] | None, Scan]] = {
    "html": (_HTML, _html),
    "markdownv2": (_MARKDOWN_V2, _markdown),
    "markdown": (_MARKDOWN, _markdown),
}
