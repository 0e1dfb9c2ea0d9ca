"""The update that a framework handles if several were collected: the newest, with the texts of all messages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chatlanes.updates import parse, text_of
from chatlanes.updates.routing import NEW_MESSAGES

#: Kinds of content that have a caption.
CAPTIONED = frozenset({"photo", "video", "animation", "audio", "document", "voice", "live_photo", "paid_media"})


def newest(updates: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The newest update. If it is a message with a text or a caption, it has those of all, joined by newlines, with
    their formatting; that of rich messages is left out. A rich message has a text of all beside its blocks.
    """
    update = updates[-1]
    kind, body = parse(update).kind, parse(update).body
    if len(updates) == 1 or kind not in NEW_MESSAGES:
        return update
    if "text" in body or "rich_message" in body:
        return {**update, kind: {**body, **_joined(updates, "text", "entities")}}
    if CAPTIONED.isdisjoint(body):
        return update
    return {**update, kind: {**body, **_joined(updates, "caption", "caption_entities")}}


def _joined(updates: Sequence[dict[str, Any]], text_field: str, entities_field: str) -> dict[str, Any]:
    joined, entities = "", []
    for update in updates:
        body = parse(update).body
        text = text_of(body)
        if not text:
            continue
        joined += "\n" * bool(joined)
        start = len(joined.encode("utf-16-le", "surrogatepass")) // 2  # Telegram counts UTF-16 code units
        joined += str(text)
        own = body.get("entities" if body.get("text") else "caption_entities") or ()
        entities += [{**each, "offset": each["offset"] + start} for each in own]
    return {**({text_field: joined} if joined else {}), **({entities_field: entities} if entities else {})}
