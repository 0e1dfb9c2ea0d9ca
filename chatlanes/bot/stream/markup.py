"""Splits a text in a parse mode (HTML, MarkdownV2, Markdown) into messages. Pure.

A text that fits is not changed. Otherwise no split is inside a tag, an escape or a link, and formatting that is open at
a split is closed there and opened again in the next message. The markup counts towards the limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from chatlanes.bot.stream.splitting import LIMIT, TextPiece, end_of_piece, units

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
            end = end_of_piece(text, start, room, lambda index: index not in inside)
            still_open = _opened(text, start, end, opened, tokens, note)
            excess = units(begin + text[start:end] + _closing(still_open)) - limit
            if excess <= 0:
                break
            room = min(room - excess, units(text[start:end]) - 1)
        if room <= 0:  # the marks alone are too long: the piece is sent without them
            begin, still_open = "", []
            end = end_of_piece(text, start, limit, lambda index: index not in inside)
        if not text[start:end].isspace():
            pieces.append(TextPiece(begin + text[start:end] + _closing(still_open), None, parse_mode))
        start, opened = end, still_open
    return pieces


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
    if note is _markdown and line_start < end and _is_quote(text, line_start):
        now.insert(0, Open(">", ">", ""))
    return now


def _is_quote(text: str, line_start: int) -> bool:
    return _QUOTE.match(text, line_start) is not None


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
