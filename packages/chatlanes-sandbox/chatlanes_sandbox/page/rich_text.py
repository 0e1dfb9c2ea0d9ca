"""Rich messages as text with entities, which is how the page shows them. Blocks without text show their type."""

from __future__ import annotations

from typing import Any

from chatlanes_sandbox.simulator.calls.markup import Marked

#: Types of RichText that are entities of the same look.
_ENTITIES = {
    **{name: name for name in ("bold", "italic", "underline", "strikethrough", "spoiler", "code", "text_mention")},
    **{name: name for name in ("mention", "hashtag", "cashtag", "bot_command")},
    "marked": "bold",
    "email_address": "email",
    "phone_number": "mention",
}
#: Blocks whose whole text has a look.
_BLOCKS = {
    "heading": "bold",
    "pre": "pre",
    "footer": "italic",
    "thinking": "italic",
    "blockquote": "blockquote",
    "expandable_blockquote": "blockquote",
    "pullquote": "blockquote",
}


def flat(rich_message: Any) -> Marked:
    """The text of all blocks, one line or more for each."""
    made = Marked()
    _write_blocks(made, rich_message.get("blocks") if isinstance(rich_message, dict) else None)
    return made


def _write_blocks(made: Marked, blocks: Any) -> None:
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            if made.text and not made.text.endswith("\n"):
                made.write("\n")
            _write_block(made, block)


def _write_block(made: Marked, block: dict[str, Any]) -> None:
    kind, start = str(block.get("type")), made.units
    match kind:
        case "list":
            _write_items(made, block.get("items"))
        case "table":
            _write_rows(made, block.get("cells"))
        case "buttons":
            made.write(" ".join(f"[{flat_text(each.get('text'))}]" for each in block.get("buttons", ())))
        case "divider":
            made.write("———")
        case "mathematical_expression":
            made.write(str(block.get("expression", "")))
            made.mark(start, "code")
        case _:
            _write(made, block.get("summary"))
            _write(made, block.get("text"))
            _write_blocks(made, block.get("blocks"))
            caption = block.get("caption")
            _write(made, caption.get("text") if isinstance(caption, dict) else caption)
    if kind in _BLOCKS:
        made.mark(start, _BLOCKS[kind])
    if made.units == start and kind != "anchor":
        made.write(f"({kind.replace('_', ' ')})")


def _write_items(made: Marked, items: Any) -> None:
    for place, item in enumerate(items if isinstance(items, list) else ()):
        box = {True: "☑ ", False: "☐ "}[bool(item.get("is_checked"))] if item.get("has_checkbox") else ""
        inside = Marked()
        _write_blocks(inside, item.get("blocks"))
        made.write("\n" * (place > 0) + (box or f"{item.get('label') or '•'} "))
        _append(made, inside)


def _write_rows(made: Marked, rows: Any) -> None:
    for place, row in enumerate(rows if isinstance(rows, list) else ()):
        made.write("\n" * (place > 0))
        for at, cell in enumerate(row):
            made.write(" | " * (at > 0))
            start = made.units
            _write(made, cell.get("text"))
            if cell.get("is_header"):
                made.mark(start, "bold")


def _append(made: Marked, inside: Marked) -> None:
    made.entities += [{**each, "offset": each["offset"] + made.units} for each in inside.entities]
    made.write(inside.text)


def _write(made: Marked, text: Any) -> None:
    """A RichText: a string, a list, or an object around another."""
    if isinstance(text, str):
        made.write(text)
    elif isinstance(text, list):
        for part in text:
            _write(made, part)
    elif isinstance(text, dict):
        kind, start = str(text.get("type")), made.units
        _write(made, text.get("text") or text.get("alternative_text") or text.get("expression"))
        if kind == "url":
            made.mark(start, "text_link", url=str(text.get("url", "")))
        elif kind in _ENTITIES:
            made.mark(start, _ENTITIES[kind])


def flat_text(text: Any) -> str:
    made = Marked()
    _write(made, text)
    return made.text
