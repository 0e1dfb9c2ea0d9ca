"""The text of a rich message (Bot API 10.1): its blocks without formatting. Pure, and never raises for any JSON value.

One line for each paragraph, heading, row of a table (cells separated by tabs), item of a list (after its label), and
caption. Media have no text of their own. Blocks of a newer Bot API have the text of the fields that are known.
"""

from collections.abc import Iterator
from typing import Any

#: Fields of a block with text of one line, in the order in which clients show them.
_BEFORE, _AFTER = ("summary", "text", "expression"), ("caption", "credit")
#: Fields with the text of a formatted part: of a button in a line, a formula, an emoji, and anything else.
_PARTS = ("text", "button", "expression", "alternative_text")


def text_of_rich(message: Any) -> str:
    """The text of a RichMessage."""
    return "\n".join(_lines(message.get("blocks"))) if isinstance(message, dict) else ""


def _lines(blocks: Any) -> Iterator[str]:
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            yield from filter(None, _lines_of(block))


def _lines_of(block: dict[str, Any]) -> Iterator[str]:
    yield from (_inline(block.get(name)) for name in _BEFORE)
    yield " ".join(filter(None, map(_inline, _list(block, "buttons"))))
    yield from ("\t".join(map(_inline, row)) for row in _list(block, "cells") if isinstance(row, list))
    yield from _lines(block.get("blocks"))
    for item in _list(block, "items"):
        if isinstance(item, dict):
            content = "\n".join(_lines(item.get("blocks")))
            yield f"{_inline(item.get('label'))} {content}".strip()
    for name in _AFTER:
        yield _inline(block.get(name))
        if name == "caption" and isinstance(caption := block.get(name), dict):
            yield _inline(caption.get("credit"))


def _list(block: dict[str, Any], name: str) -> list[Any]:
    found = block.get(name)
    return found if isinstance(found, list) else []


def _inline(text: Any) -> str:
    """The text of a RichText: a text, a list, or a formatted part."""
    if isinstance(text, str):
        return text
    if isinstance(text, list):
        return "".join(map(_inline, text))
    if isinstance(text, dict):
        return next((_inline(text[name]) for name in _PARTS if name in text), "")
    return ""
