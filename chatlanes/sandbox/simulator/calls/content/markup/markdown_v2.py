"""parse_mode MarkdownV2: markup nests, and every character that could be markup must be escaped."""

from __future__ import annotations

import re

from chatlanes.sandbox.simulator.calls.content.markup.writer import Marked, cannot, link

_MARKS = {"*": "bold", "__": "underline", "_": "italic", "~": "strikethrough", "||": "spoiler"}
_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")
#: Double signs before single ones; a quote begins a line.
_TOKEN = re.compile(r"\\[\x01-\x7e]|```|__|\|\||^>|\n|.", re.MULTILINE | re.DOTALL)
_PRE = re.compile(r"(?:(\w+)\n|\n)?((?:\\.|[^`\\]|`(?!``))*)```", re.DOTALL)
_CODE = re.compile(r"((?:\\.|[^`\\])*)`", re.DOTALL)
_ADDRESS = re.compile(r"\(((?:\\.|[^)\\])*)\)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def read_markdown_v2(raw: str) -> Marked:
    """Raises RefusedError."""
    reader = _Reader(raw)
    while reader.at < len(raw):
        reader.step()
    return reader.ended()


class _Reader:
    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.at = 0
        self.made = Marked()
        self.opened: list[tuple[str, int, int]] = []  # sign, start in units, place in raw

    def step(self) -> None:
        found = _TOKEN.match(self.raw, self.at)
        assert found is not None  # noqa: S101 - it matches any character
        sign, place = found[0], self.at
        self.at = found.end()
        if sign.startswith("\\") and len(sign) == 2:
            self.made.write(sign[1])
        elif sign == "```":
            self.pre(place)
        elif sign == "`":
            self.code(place)
        elif sign == ">" and (place == 0 or self.raw[place - 1] == "\n"):
            self.quote(place)
        elif sign == "\n":
            self.line()
        elif sign == "]" and self.is_open("["):
            self.linked(place)
        elif sign in _MARKS or sign == "[":
            self.mark(sign, place)
        elif sign in _RESERVED:
            raise cannot(f"Character '{sign}' is reserved and must be escaped with the preceding '\\'")
        else:
            self.made.write(sign)

    def is_open(self, sign: str) -> bool:
        return bool(self.opened) and self.opened[-1][0] == sign

    def mark(self, sign: str, place: int) -> None:
        if sign in _MARKS and self.is_open(sign):
            self.made.mark(self.opened.pop()[1], _MARKS[sign])
        else:
            self.opened.append((sign, self.made.units, place))

    def pre(self, place: int) -> None:
        found = self.rest(_PRE, place, "Pre")
        start = self.made.units
        self.made.write(_ESCAPE.sub(r"\1", found[2]))
        self.made.mark(start, "pre", language=found[1])

    def code(self, place: int) -> None:
        found = self.rest(_CODE, place, "Code")
        start = self.made.units
        self.made.write(_ESCAPE.sub(r"\1", found[1]))
        self.made.mark(start, "code")

    def linked(self, place: int) -> None:
        _, start, begun = self.opened.pop()
        if not self.raw.startswith("(", self.at):
            raise self.unfinished("Link", begun)
        link(self.made, start, _ESCAPE.sub(r"\1", self.rest(_ADDRESS, place, "Link")[1]))

    def rest(self, pattern: re.Pattern[str], place: int, what: str) -> re.Match[str]:
        found = pattern.match(self.raw, self.at)
        if found is None:
            raise self.unfinished(what, place)
        self.at = found.end()
        return found

    def quote(self, place: int) -> None:
        """Consecutive lines that begin with the sign are one quote."""
        if not any(sign == ">" for sign, _, _ in self.opened):
            self.opened.append((">", self.made.units, place))

    def line(self) -> None:
        if self.is_open(">") and not self.raw.startswith(">", self.at):
            self.made.mark(self.opened.pop()[1], "blockquote")
        self.made.write("\n")

    def ended(self) -> Marked:
        if self.is_open(">"):
            self.made.mark(self.opened.pop()[1], "blockquote")
        if self.opened:
            sign, _, place = self.opened[-1]
            raise self.unfinished(_MARKS.get(sign, "link").capitalize(), place)
        return self.made

    def unfinished(self, what: str, place: int) -> Exception:
        return cannot(f"Can't find end of {what} entity at byte offset {len(self.raw[:place].encode())}")
