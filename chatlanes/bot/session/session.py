"""ctx.session: data that a bot stores per chat, or per user, topic or custom key.

It is read at its first use and written once, with the settle of an update whose handler succeeded; an unchanged session
is not written. An attempt that failed, was evicted or lost its lease writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chatlanes.bot.session import codec
from chatlanes.bot.session.codec import SessionError
from chatlanes.bot.session.keys import KeyFunction, SessionKey, session_key_of
from chatlanes.bot.session.stored import Stored, UnsafeKeyError

_BY_HAND = (
    "this update has no lane, so another update could write its session at the same time. To try a handler by hand, "
    "assign a session first: ctx.session = {}"
)


@dataclass(frozen=True)
class SessionPlan:
    """How sessions are keyed (`by` chat, user, chat+user, topic, or a function, see keys.py), and how long one is kept
    after its last change.
    """

    by: str | KeyFunction = "chat"
    ttl_s: float | None = None

    @property
    def described(self) -> str:
        return f"session={self.by if isinstance(self.by, str) else getattr(self.by, '__name__', self.by)}"


DEFAULT_PLAN = SessionPlan()


class Session:
    """The session in one attempt at one update."""

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
        """The session. Raises SessionError, chatlanes.lanes.LeaseLost, and ParkUpdate if Redis stays unavailable."""
        if self._data is None:
            self._data = self._load()
        return self._data

    def put(self, data: dict[str, Any]) -> None:
        """Replace the session. Raises the same as `get`, and TypeError if `data` is not a dict."""
        if not isinstance(data, dict):
            raise TypeError(f"a session is a dict, not a {type(data).__name__}; write ctx.session = {{…}}")
        if self._stored is not None:
            self.get()
        self._data = data

    def stage(self) -> None:
        """Stage the changed session in `stored`, after the handler. Raises the same as `get`."""
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
            raise SessionError(f"this update has no session: {self._plan.described} gives it no key")
        try:
            if moves_from is not None:
                self._stored.move(moves_from, key)
            self._key, self._before = key, self._stored.load(key)
        except UnsafeKeyError as unsafe:
            advice = "change ORDER_BY so that it includes this key, or choose other sessions with Bot(…, session=…)"
            raise SessionError(f"the session ({self._plan.described}) {unsafe}; {advice}") from None
        return codec.decode(self._before, f"session …/{key}") if self._before is not None else {}

    def _move_untouched(self, stored: Stored) -> None:
        """Move the session to the supergroup even if the handler does not use it."""
        if not isinstance(self._plan.by, str):
            return
        key, moves_from = self._place()
        if key and moves_from and stored.is_safe(key) and stored.is_safe(moves_from):
            stored.move(moves_from, key)

    def _place(self) -> SessionKey:
        place = session_key_of(self._update, self._plan.by)
        if not isinstance(place.key, str | None):
            raise SessionError(f"{self._plan.described} must return a text or None, not {place.key!r}")
        return place
