"""The argument of a handler: one update, and the means to answer it.

Guarantees that the other updates of the same lanes wait while the handler runs, and that what it stores is written with
the end of the update or not at all. Its repr holds no text of a user.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from chatlanes.bot.session.session import CHATS_OWN, Session, SessionPlan
from chatlanes.bot.session.stored import Stored
from chatlanes.bot.shorthands import Shorthands
from chatlanes.updates import ParsedUpdate, is_stale, number, parse


class Api(Protocol):
    """What calls the Bot API: the client itself, or what stands before it."""

    def call(self, method: str, /, **params: Any) -> Any: ...


@runtime_checkable
class HasFiles(Protocol):
    """An Api that gives files too."""

    def download(self, file_path: str, to: Path | None = None) -> bytes: ...


@dataclass(init=False, eq=False, repr=False)
class Context(Shorthands):
    """The one argument of a handler. What it can do besides is in chatlanes/bot/shorthands."""

    update: dict[str, Any]  #: as Telegram sent it
    api: Api
    attempt: int = 1  #: 1 at the first time, 2 after a failure or a death, …
    deadline_s: float | None = None  #: when UPDATE_TIMEOUT is over, as time.monotonic(); None: never
    appended_s: float | None = None  #: when the poller or receiver had it, as time.monotonic(); None: unknown
    stored: Stored | None = None  #: for adapters: what the update keeps in Redis; None: it came through no lane
    session_plan: SessionPlan = CHATS_OWN
    fence: int | None = None  #: greater in every run of this update than in those before; None: it came through no lane

    def __init__(
        self,
        update: dict[str, Any],
        api: Api,
        attempt: int = 1,
        deadline_s: float | None = None,
        appended_s: float | None = None,
        stored: Stored | None = None,
        session_plan: SessionPlan = CHATS_OWN,
        fence: int | None = None,
    ) -> None:
        """At once: each update has one, and what is assigned has to pass __setattr__."""
        self.__dict__.update(
            update=update,
            api=api,
            attempt=attempt,
            deadline_s=deadline_s,
            appended_s=appended_s,
            stored=stored,
            session_plan=session_plan,
            fence=fence,
            _parsed_update=parse(update),
        )

    @property
    def update_id(self) -> int:
        return int(self.update["update_id"])

    @property
    def kind(self) -> str:
        """`message`, `callback_query`, …"""
        return self._parsed.kind

    @property
    def chat_id(self) -> int | None:
        """The chat it came from, else its user's private chat; None for the few updates with neither, such as polls."""
        return self._parsed.home

    @property
    def user_id(self) -> int | None:
        """Who did it."""
        return self._parsed.user

    @property
    def message(self) -> dict[str, Any] | None:
        """The message that the update is about, as Telegram sent it: the one written, or the one under the button."""
        place = self._parsed.place
        return place if number(place.get("message_id")) is not None else None

    @property
    def text(self) -> str:
        """What was written: the text of a message or post, or the caption of a photo; else empty."""
        body = self._parsed.body
        return str(body.get("text") or body.get("caption") or "")

    @property
    def data(self) -> str:
        """What the button that was pressed stands for (`callback_data`); else empty."""
        return str(self._parsed.body.get("data") or "")

    @property
    def timed_out(self) -> bool:
        """Whether UPDATE_TIMEOUT is over. A thread cannot be interrupted: a long loop may ask this, and end itself."""
        return self.deadline_s is not None and time.monotonic() >= self.deadline_s

    @property
    def age_s(self) -> float:
        """Seconds since the poller or the receiver had it; a replay makes it new."""
        return 0.0 if self.appended_s is None else time.monotonic() - self.appended_s

    @property
    def is_stale(self) -> bool:
        """Whether Telegram has given up waiting for its answer, as it does after 30 s with an inline query."""
        return is_stale(self.kind, self.age_s)

    @property
    def session(self) -> dict[str, Any]:
        """What the bot remembers of this chat: JSON, saved once when the handler has succeeded, deleted when empty.

        Raises SessionError where this update can have none, and ParkUpdate when Redis stays away: the update
        goes back then, and runs again.
        """
        return self._session.get()

    @session.setter
    def session(self, data: dict[str, Any]) -> None:
        self._session.put(data)

    @property
    def has_read_session(self) -> bool:
        return "_session" in self.__dict__ and self._session.is_read

    def stage(self) -> None:
        """Hand over what is to be kept, when the handler has succeeded. Raises SessionError."""
        # One that nobody looked at has nothing to hand over, unless its group becomes a supergroup: it moves along.
        if "_session" in self.__dict__ or self._parsed.migration is not None:
            self._session.stage()

    def call(self, method: str, /, **params: Any) -> Any:
        """The result of any Bot API method, made once: a later run of this update gets the same result again.

        `uncertain="repeat"` or `"skip"` says, for this call, what UNCERTAIN_CALL says for all; a skipped one
        gives None. Waits while Telegram wants that; for longer the update is put off (docs/flood.md). Raises
        chatlanes.telegram.errors.BotApiError, and chatlanes.lanes.LeaseLost when somebody else may run the update.
        """
        return self.api.call(method, **params)

    @cached_property
    def _session(self) -> Session:
        return Session(self.update, self.session_plan, self.stored)

    def __setattr__(self, name: str, value: Any) -> None:
        """Nothing but the session can be assigned: a misspelt name would be lost without a word."""
        if name != "session":
            raise AttributeError(f"ctx.{name} cannot be assigned; keep what you like in ctx.session")
        super().__setattr__(name, value)

    @property
    def _parsed(self) -> ParsedUpdate:
        parsed: ParsedUpdate = self.__dict__["_parsed_update"]
        return parsed

    def _fetch(self, file_path: str, to: Path | None) -> bytes:
        if not isinstance(self.api, HasFiles):
            raise TypeError(f"{type(self.api).__name__} gives no files")
        return self.api.download(file_path, to)

    def __repr__(self) -> str:
        return f"Context({self.kind} {self.update.get('update_id')}, chat {self.chat_id}, attempt {self.attempt})"
