"""Drafts: previews of a message that is being generated (sendMessageDraft, sendRichMessageDraft).

A private chat, or a topic in it, has at most one draft. It vanishes 30 s after it was last sent, when the bot sends a
message there, and when its user presses Stop, unless `keep_on_stop` is set. After that, further drafts with its id are
accepted and not shown, until the bot sends a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chatlanes_sandbox.simulator.calls.content import content_of
from chatlanes_sandbox.simulator.calls.files import FileStore
from chatlanes_sandbox.simulator.calls.params import Params, RefusedError, is_true, whole

LIFE_S = 30.0

#: Chat and topic; 0 without topics.
Place = tuple[int, int]


@dataclass(frozen=True)
class Draft:
    """`content`: the fields of the message that it previews; a text may be empty. `ends_s`: by Drafts.clock."""

    place: Place
    draft_id: int
    content: dict[str, Any]
    can_stop: bool
    keep_on_stop: bool
    ends_s: float


class Drafts:
    """The drafts of one bot. `changed` is called with the place of each draft that is new, has changed or has ended,
    except by its age.
    """

    def __init__(
        self, changed: Callable[[Place], object] = lambda place: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._changed, self.clock = changed, clock
        self._drafts: dict[Place, Draft] = {}
        #: Ids whose Stop button was pressed.
        self._stopped: set[tuple[Place, int]] = set()

    def put(self, method: str, params: Params, files: FileStore) -> bool:
        """A call of the bot. Raises RefusedError."""
        place, draft_id = place_of(params), whole(params, "draft_id", 0)
        if place[0] <= 0:
            raise RefusedError("Bad Request: chat not found")
        if not draft_id:
            raise RefusedError("Bad Request: DRAFT_ID_INVALID")
        content = {"text": "", **content_of(method.removesuffix("Draft"), params, files)}
        if "rich_message" in content:
            del content["text"]
        if (place, draft_id) not in self._stopped:
            can_stop, keep = is_true(params.get("can_stop")), is_true(params.get("keep_on_stop"))
            self._drafts[place] = Draft(place, draft_id, content, can_stop, keep, self.clock() + LIFE_S)
            self._changed(place)
        return True

    def stop(self, place: Place) -> dict[str, Any]:
        """Its user presses Stop. Returns fields of the update. Raises ValueError if no Stop button is shown."""
        draft = self.at(place)
        if draft is None or not draft.can_stop:
            raise ValueError("the chat has no draft with a Stop button")
        self._stopped.add((place, draft.draft_id))
        if not draft.keep_on_stop:
            del self._drafts[place]
        self._changed(place)
        return {"draft_id": draft.draft_id, **({"message_thread_id": place[1]} if place[1] else {})}

    def end(self, place: Place) -> None:
        """The bot has sent a message there."""
        self._stopped = {stopped for stopped in self._stopped if stopped[0] != place}
        if self._drafts.pop(place, None):
            self._changed(place)

    def at(self, place: Place) -> Draft | None:
        draft = self._drafts.get(place)
        return draft if draft and draft.ends_s > self.clock() else None

    def can_stop(self, draft: Draft) -> bool:
        """True if its button is shown: it may be pressed once."""
        return draft.can_stop and (draft.place, draft.draft_id) not in self._stopped

    def shown(self) -> list[dict[str, Any]]:
        """All drafts, as the control interface and the page show them."""
        drafts = (self.at(place) for place in self._drafts)
        return [
            {
                "chat_id": draft.place[0],
                "message_thread_id": draft.place[1],
                "draft_id": draft.draft_id,
                **draft.content,
                "can_stop": self.can_stop(draft),
                "ends_in_s": round(draft.ends_s - self.clock(), 3),
            }
            for draft in drafts
            if draft
        ]


def place_of(params: Params) -> Place:
    return whole(params, "chat_id", 0), whole(params, "message_thread_id", 0)
