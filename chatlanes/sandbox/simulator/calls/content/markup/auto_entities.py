"""Entities that Telegram finds by itself: links, commands, mentions and hashtags. Pure."""

from __future__ import annotations

import re

from chatlanes.sandbox.simulator.calls.content.markup.writer import Entity, utf16_length

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
    closed = [_span(entity) for entity in given if entity.get("type") in _CLOSED]
    return [entity for entity in found if not any(_touch(_span(entity), span) for span in closed)]


def _span(entity: Entity) -> tuple[int, int]:
    start = int(entity.get("offset", 0))
    return start, start + int(entity.get("length", 0))


def _touch(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
