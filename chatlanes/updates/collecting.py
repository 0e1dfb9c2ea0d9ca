"""Chooses the group of an update: consecutive updates of one lane and one group are handed over as one run (COLLECT).

The name depends on nothing but the update. Payments, commands, edits and service messages are never in a group; an
album's parts always are. Two updates of different chats never have the same name, except by a user's own function.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from celery_lanes.protocol import Group
from chatlanes.settings import Settings
from chatlanes.settings.checks import NO_COLLECT
from chatlanes.settings.imports import import_function
from chatlanes.updates.parsing import ParsedUpdate, text_id, text_of
from chatlanes.updates.routing import NEW_MESSAGES, is_urgent, name_by

#: From an update to the name of its group, or None.
GroupName = Callable[[dict[str, Any], ParsedUpdate], str | None]

#: The fields of a message that a person wrote or sent. A message with none of them is a service message.
CONTENT = frozenset(
    {
        *("text", "rich_message", "photo", "video", "animation", "audio", "document", "voice", "video_note", "sticker"),
        *("live_photo", "location", "venue", "contact", "poll", "dice", "game", "story", "paid_media", "checklist"),
    }
)


def grouping(settings: Settings) -> Callable[[dict[str, Any], ParsedUpdate], Group | None] | None:
    """The function that gives an update its group, or None; None instead of a function if nothing is collected.

    Raises ImportPathError. The function raises KeysError if it is a user's own and fails.
    """
    if settings.collect == NO_COLLECT:
        return None
    name_of = naming(settings.collect)
    quiet_ms, max_wait_ms = round(settings.collect_quiet * 1000), round(settings.collect_max_wait * 1000)
    most, interrupts, steers = settings.collect_max, settings.interrupt == "on", settings.interrupt == "steer"

    def group_of(update: dict[str, Any], parsed: ParsedUpdate) -> Group | None:
        name = name_of(update, parsed)
        return None if name is None else Group(name, quiet_ms, max_wait_ms, most, interrupts, steers)

    return group_of


def naming(collect: str) -> GroupName:
    """The function that gives an update the name of its group. Raises ImportPathError."""
    chosen = BUILT_IN.get(collect) or _custom(collect)

    def name_of(update: dict[str, Any], parsed: ParsedUpdate) -> str | None:
        name = chosen(update, parsed)
        # The answer to a run that has a public message as well would be public.
        return name if name is None or parsed.ephemeral is None else f"ephemeral:{name}"

    return name_of


def by_album(update: dict[str, Any], parsed: ParsedUpdate) -> str | None:
    if parsed.kind not in NEW_MESSAGES or (album := text_id(parsed.body.get("media_group_id"))) is None:
        return None
    return f"album:{_place(parsed)}:{album}"


def by_sender(update: dict[str, Any], parsed: ParsedUpdate) -> str | None:
    """New messages of one sender in one chat and topic. The posts of a channel have no sender."""
    if parsed.kind not in NEW_MESSAGES or CONTENT.isdisjoint(parsed.body):
        return None
    written = text_of(parsed.body)
    if isinstance(written, str) and written.startswith("/") and "media_group_id" not in parsed.body:
        return None
    sender = parsed.user if parsed.acting_chat is None else parsed.acting_chat
    return f"messages:{_place(parsed)}:{'' if sender is None else sender}"


BUILT_IN: dict[str, GroupName] = {"albums": by_album, "messages": by_sender}


def _place(parsed: ParsedUpdate) -> str:
    topic = "" if parsed.topic is None else parsed.topic
    return f"{parsed.business_connection or ''}:{parsed.chat}:{topic}"


@cache
def _custom(collect: str) -> GroupName:
    function = import_function("COLLECT", collect, "the name of a group, or None")

    def by_function(update: dict[str, Any], parsed: ParsedUpdate) -> str | None:
        if is_urgent(parsed):
            return None
        what = "a name with 1 to 256 characters and no control characters"
        return name_by(f"{collect} (COLLECT)", function, update, what)

    return by_function
