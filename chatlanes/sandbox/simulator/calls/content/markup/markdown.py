"""parse_mode Markdown, the legacy one: no nesting, few escapes."""

from __future__ import annotations

from chatlanes.sandbox.simulator.calls.content.markup.writer import Marked, cannot, link

_KINDS = {"*": "bold", "_": "italic", "`": "code", "```": "pre"}


def read_markdown(raw: str) -> Marked:
    """Raises RefusedError."""
    made, at = Marked(), 0
    while at < len(raw):
        sign = "```" if raw.startswith("```", at) else raw[at]
        if sign == "\\" and raw[at + 1 : at + 2] in ("_", "*", "`", "["):
            made.write(raw[at + 1])
            at += 2
        elif sign in _KINDS:
            at = _span(made, raw, at, sign)
        elif sign == "[":
            at = _linked(made, raw, at)
        else:
            made.write(sign)
            at += 1
    return made


def _span(made: Marked, raw: str, at: int, sign: str) -> int:
    end = raw.find(sign, at + len(sign))
    if end < 0:
        raise cannot(f"Can't find end of the entity starting at byte offset {len(raw[:at].encode())}")
    start = made.units
    made.write(raw[at + len(sign) : end])
    made.mark(start, _KINDS[sign])
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
