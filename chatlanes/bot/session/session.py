"""ctx.session: what a bot remembers of a chat, or of whom it is told to.

Promises that it is read at its first use and written once, with the update, when the handler succeeded: never by an
attempt that failed, was evicted, or lost its lease, and not at all when nothing in it changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chatlanes.bot.session import codec
from chatlanes.bot.session.codec import SessionError
from chatlanes.bot.session.keys import KeyFunction, SessionKey, session_key_of
from chatlanes.bot.session.stored import Stored, UnsafeKeyError

_BY_HAND = (
    "this update came through no lane, so nothing keeps others from writing its session at the same time. To try a "
    "handler by hand, give it one first: ctx.session = {}"
)


@dataclass(frozen=True)
class SessionPlan:
    """Whose it is: `by` chat, user, chat+user, topic, or a function (keys.py). How long it lasts unchanged."""

    by: str | KeyFunction = "chat"
    ttl_s: float | None = None

    @property
    def told(self) -> str:
        return f"session={self.by if isinstance(self.by, str) else getattr(self.by, '__name__', self.by)}"


CHATS_OWN = SessionPlan()


class Session:
    """That of one attempt at one update."""

    def __init__(self, update: dict[str, Any], plan: SessionPlan, stored: Stored | None) -> None:
        self._update = update
        self._plan = plan
        self._stored = stored
        self._key = ""
        self._before: bytes | None = None
        self._data: dict[str, Any] | None = None

    @property
    def is_read(self) -> bool:
        return self._data is not None

    def get(self) -> dict[str, Any]:
        """Raises SessionError, chatlanes.lanes.LeaseLost, and ParkUpdate when Redis stays away."""
        if self._data is None:
            self._data = self._load()
        return self._data

    def put(self, data: dict[str, Any]) -> None:
        """Let this be the session. Raises as `get`, and TypeError for what is no dict."""
        if not isinstance(data, dict):
            raise TypeError(f"a session is a dict, not a {type(data).__name__}; write ctx.session = {{…}}")
        if self._stored is not None:
            self.get()
        self._data = data

    def stage(self) -> None:
        """Hand what changed to `stored`, after the handler. Raises as `get`."""
        if self._stored is None:
            if self._data is not None:
                raise SessionError(_BY_HAND)
            return
        if self._data is None:
            self._move_untouched(self._stored)
            return
        after = codec.encode(self._data) if self._data else None
        if after == self._before:
            return
        codec.check_keys(self._data)
        self._stored.stage(self._key, after, self._plan.ttl_s)

    def _load(self) -> dict[str, Any]:
        if self._stored is None:
            raise SessionError(_BY_HAND)
        key, moves_from = self._place()
        if key is None:
            raise SessionError(f"nothing says whose session this update has: {self._plan.told} gives it no key")
        try:
            if moves_from is not None:
                self._stored.move(moves_from, key)
            self._key, self._before = key, self._stored.load(key)
        except UnsafeKeyError as unsafe:
            advice = (
                "set ORDER_BY so that it is ordered by that too, or say with Bot(…, session=…) whose session it has"
            )
            raise SessionError(f"the session ({self._plan.told}) {unsafe}; {advice}") from None
        return codec.decode(self._before, f"session …/{key}") if self._before is not None else {}

    def _move_untouched(self, stored: Stored) -> None:
        """A handler that never looks at its session does not leave it behind."""
        if not isinstance(self._plan.by, str):
            return
        key, moves_from = self._place()
        if key and moves_from and stored.is_safe(key) and stored.is_safe(moves_from):
            stored.move(moves_from, key)

    def _place(self) -> SessionKey:
        place = session_key_of(self._update, self._plan.by)
        if not isinstance(place.key, str | None):
            raise SessionError(f"{self._plan.told} must give a text or None, not {place.key!r}")
        return place
