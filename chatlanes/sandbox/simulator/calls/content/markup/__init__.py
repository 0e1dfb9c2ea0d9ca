"""Text with markup, as Telegram parses it: plain text, and entities with offsets in UTF-16 units.

Mistakes are refused as by Telegram: missing escapes, unknown tags, missing ends. Custom emoji, dates and the limits on
nesting are not implemented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlanes.sandbox.simulator.calls.content.markup.auto_entities import auto_entities, free_of
from chatlanes.sandbox.simulator.calls.content.markup.html import read_html
from chatlanes.sandbox.simulator.calls.content.markup.markdown import read_markdown
from chatlanes.sandbox.simulator.calls.content.markup.markdown_v2 import read_markdown_v2
from chatlanes.sandbox.simulator.calls.content.markup.writer import Entity, Marked, cannot
from chatlanes.sandbox.simulator.calls.params import Params, listed

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
        raise cannot("unsupported parse_mode")
    made = reader(raw)
    return made.text, made.entities


def _place(entity: Entity) -> tuple[int, int]:
    return int(entity.get("offset", 0)), -int(entity.get("length", 0))
