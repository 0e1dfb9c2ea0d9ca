"""Text with markup, as Telegram parses it: plain text, and entities with offsets in UTF-16 units.

Mistakes are refused as by Telegram: missing escapes, unknown tags, missing ends. Custom emoji, dates and the limits on
nesting are not implemented.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chatlanes_sandbox.simulator.calls.params import Params, RefusedError, listed

Entity = dict[str, Any]


def utf16_length(text: str) -> int:
    """The length in UTF-16 units, as Telegram counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def cannot(why: str) -> RefusedError:
    return RefusedError(f"Bad Request: can't parse entities: {why}")


@dataclass
class Marked:
    """Text and entities, built from beginning to end."""

    text: str = ""
    entities: list[Entity] = field(default_factory=list)
    units: int = 0

    def write(self, piece: str) -> None:
        self.text += piece
        self.units += utf16_length(piece)

    def mark(self, start: int, kind: str, **more: Any) -> None:
        """An entity from `start`, in units, to the end; none if it is empty."""
        if self.units > start:
            entity = {"offset": start, "length": self.units - start, "type": kind, **more}
            self.entities.append({name: value for name, value in entity.items() if value is not None})


def link(made: Marked, start: int, url: str) -> None:
    """A link without a valid address is plain text, as at Telegram."""
    if "." in url or "://" in url:
        made.mark(start, "text_link", url=url if "://" in url else f"http://{url}/")


# ── entities that Telegram finds by itself: links, commands, mentions and hashtags ──

#: A command may name its bot; a dot at the end of an address is not a part of it.
_FOUND = re.compile(
    r"(?P<url>https?://[^\s<>]*[^\s<>.,;:!?)])"
    r"|(?P<email>[\w.+-]+@\w[\w-]*(?:\.[\w-]+)+)"
    r"|(?<![\w/<])(?P<bot_command>/[A-Za-z0-9_]{1,64}(?:@\w+)?)"
    r"|(?<!\w)(?P<mention>@\w{4,32})"
    r"|(?<!\w)(?P<hashtag>#\w*[^\W\d]\w*)"
)
#: Nothing is found inside of these.
_CLOSED = frozenset({"code", "pre", "text_link", "text_mention", "url"})


def auto_entities(text: str) -> list[Entity]:
    return [
        {
            "offset": utf16_length(text[: found.start()]),
            "length": utf16_length(found[0]),
            "type": str(found.lastgroup),
        }
        for found in _FOUND.finditer(text)
    ]


def free_of(given: list[Entity], found: list[Entity]) -> list[Entity]:
    """The entities outside of code and links."""
    closed = [_reach(entity) for entity in given if entity.get("type") in _CLOSED]
    return [entity for entity in found if not any(_touch(_reach(entity), span) for span in closed)]


def _reach(entity: Entity) -> tuple[int, int]:
    start = int(entity.get("offset", 0))
    return start, start + int(entity.get("length", 0))


def _touch(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


# ── parse_mode HTML ──

_TAGS = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "tg-spoiler": "spoiler",
    "span": "spoiler",
    "a": "text_link",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
    "tg-emoji": "",
}
_HTML_TOKEN = re.compile(r"<(?P<end>/?)(?P<tag>[A-Za-z0-9-]*)(?P<rest>[^<>]*)>?|(?P<named>&(?:lt|gt|amp|quot|#\w+);)")
_ATTRIBUTE = re.compile(r"([\w-]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|(\S+)))?")


@dataclass
class _Open:
    tag: str
    start: int
    attributes: dict[str, str]


def read_html(raw: str) -> Marked:
    """Raises RefusedError."""
    made, opened, at = Marked(), list[_Open](), 0
    for found in _HTML_TOKEN.finditer(raw):
        made.write(raw[at : found.start()])
        at = found.end()
        if found["named"]:
            made.write(html.unescape(found["named"]))
        elif found["end"]:
            _close(made, opened, found["tag"].lower(), _bytes(raw, found))
        else:
            opened.append(_begun(made, found, _bytes(raw, found)))
    made.write(raw[at:])
    if opened:
        raise cannot(f'Can\'t find end tag corresponding to start tag "{opened[-1].tag}"')
    return made


def _bytes(raw: str, found: re.Match[str]) -> int:
    """Telegram counts them."""
    return len(raw[: found.start()].encode())


def _begun(made: Marked, found: re.Match[str], offset: int) -> _Open:
    tag = found["tag"].lower()
    attributes = {name.lower(): a or b or c for name, a, b, c in _ATTRIBUTE.findall(found["rest"])}
    if tag not in _TAGS or not found[0].endswith(">"):
        raise cannot(f'Unsupported start tag "{tag}" at byte offset {offset}')
    if tag == "span" and attributes.get("class") != "tg-spoiler":
        raise cannot(f'Tag "span" must have class "tg-spoiler" at byte offset {offset}')
    return _Open(tag, made.units, {name: html.unescape(value) for name, value in attributes.items()})


def _close(made: Marked, opened: list[_Open], tag: str, offset: int) -> None:
    if not opened:
        raise cannot(f"Unexpected end tag at byte offset {offset}")
    last = opened.pop()
    if tag not in ("", last.tag):
        raise cannot(f'Unmatched end tag at byte offset {offset}, expected "</{last.tag}>", found "</{tag}>"')
    kind = _TAGS[last.tag]
    if kind == "text_link":
        link(made, last.start, last.attributes.get("href", ""))
    elif kind == "blockquote" and "expandable" in last.attributes:
        made.mark(last.start, "expandable_blockquote")
    elif last.tag == "code" and opened and opened[-1].tag == "pre" and opened[-1].start == last.start:
        opened[-1].attributes["language"] = last.attributes.get("class", "").removeprefix("language-")
    elif kind:
        made.mark(last.start, kind, language=last.attributes.get("language") or None)


# ── parse_mode Markdown, the legacy one: no nesting, few escapes ──

_SIGNS = {"*": "bold", "_": "italic", "`": "code", "```": "pre"}


def read_markdown(raw: str) -> Marked:
    """Raises RefusedError."""
    made, at = Marked(), 0
    while at < len(raw):
        sign = "```" if raw.startswith("```", at) else raw[at]
        if sign == "\\" and raw[at + 1 : at + 2] in ("_", "*", "`", "["):
            made.write(raw[at + 1])
            at += 2
        elif sign in _SIGNS:
            at = _signed(made, raw, at, sign)
        elif sign == "[":
            at = _linked(made, raw, at)
        else:
            made.write(sign)
            at += 1
    return made


def _signed(made: Marked, raw: str, at: int, sign: str) -> int:
    end = raw.find(sign, at + len(sign))
    if end < 0:
        raise cannot(f"Can't find end of the entity starting at byte offset {len(raw[:at].encode())}")
    start = made.units
    made.write(raw[at + len(sign) : end])
    made.mark(start, _SIGNS[sign])
    return end + len(sign)


def _linked(made: Marked, raw: str, at: int) -> int:
    """Without an address behind it, the bracket is text."""
    middle = raw.find("](", at)
    end = raw.find(")", middle)
    if middle < 0 or end < 0:
        made.write("[")
        return at + 1
    start = made.units
    made.write(raw[at + 1 : middle])
    link(made, start, raw[middle + 2 : end])
    return end + 1


# ── parse_mode MarkdownV2: markup nests, and every character that could be markup must be escaped ──

_MARKS = {"*": "bold", "__": "underline", "_": "italic", "~": "strikethrough", "||": "spoiler"}
_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")
#: Double signs before single ones; a quote begins a line.
_V2_TOKEN = re.compile(r"\\[\x01-\x7e]|```|__|\|\||^>|\n|.", re.MULTILINE | re.DOTALL)
_PRE = re.compile(r"(?:(\w+)\n|\n)?((?:\\.|[^`\\]|`(?!``))*)```", re.DOTALL)
_CODE = re.compile(r"((?:\\.|[^`\\])*)`", re.DOTALL)
_ADDRESS = re.compile(r"\(((?:\\.|[^)\\])*)\)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def read_markdown_v2(raw: str) -> Marked:
    """Raises RefusedError."""
    reader = _MarkdownV2(raw)
    while reader.at < len(raw):
        reader.step()
    return reader.ended()


class _MarkdownV2:
    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.at = 0
        self.made = Marked()
        self.opened: list[tuple[str, int, int]] = []  # sign, start in units, place in raw

    def step(self) -> None:
        found = _V2_TOKEN.match(self.raw, self.at)
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


# ── all of them ──

_READERS: dict[str, Callable[[str], Marked]] = {
    "": Marked,
    "html": read_html,
    "markdown": read_markdown,
    "markdownv2": read_markdown_v2,
}


def marked(params: Params, name: str) -> dict[str, Any]:
    """`text` or `caption` and its entities, as a message holds them; empty when there is none. Raises RefusedError."""
    raw = str(params.get(name) or "")
    if not raw:
        return {}
    field = "entities" if name == "text" else f"{name}_entities"
    given = [entity for entity in listed(params, field) if isinstance(entity, dict)]
    text, entities = read(raw, str(params.get("parse_mode") or "")) if not given else (raw, given)
    entities = sorted([*entities, *free_of(entities, auto_entities(text))], key=_place)
    return {name: text, **({field: entities} if entities else {})}


def read(raw: str, parse_mode: str) -> tuple[str, list[Entity]]:
    """Raises RefusedError."""
    reader = _READERS.get(parse_mode.lower())
    if reader is None:
        raise RefusedError("Bad Request: unsupported parse_mode")
    made = reader(raw)
    return made.text, made.entities


def _place(entity: Entity) -> tuple[int, int]:
    return int(entity.get("offset", 0)), -int(entity.get("length", 0))
