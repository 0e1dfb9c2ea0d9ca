"""parse_mode HTML."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from chatlanes.sandbox.simulator.calls.content.markup.writer import Marked, cannot, link

_KINDS = {
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
_TOKEN = re.compile(r"<(?P<end>/?)(?P<tag>[A-Za-z0-9-]*)(?P<rest>[^<>]*)>?|(?P<named>&(?:lt|gt|amp|quot|#\w+);)")
_ATTRIBUTE = re.compile(r"([\w-]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|(\S+)))?")


@dataclass
class _Open:
    tag: str
    start: int
    attributes: dict[str, str]


def read_html(raw: str) -> Marked:
    """Raises RefusedError."""
    made, opened, at = Marked(), list[_Open](), 0
    for found in _TOKEN.finditer(raw):
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
    if tag not in _KINDS or not found[0].endswith(">"):
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
    kind = _KINDS[last.tag]
    if kind == "text_link":
        link(made, last.start, last.attributes.get("href", ""))
    elif kind == "blockquote" and "expandable" in last.attributes:
        made.mark(last.start, "expandable_blockquote")
    elif last.tag == "code" and opened and opened[-1].tag == "pre" and opened[-1].start == last.start:
        opened[-1].attributes["language"] = last.attributes.get("class", "").removeprefix("language-")
    elif kind:
        made.mark(last.start, kind, language=last.attributes.get("language") or None)
