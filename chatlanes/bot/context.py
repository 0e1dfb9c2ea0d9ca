"""The argument of a handler: one update, or with COLLECT several, and the means to answer.

Guarantees that the other updates of the same lanes wait while the handler runs, and that its session is written when
the update is settled or not at all. Its repr contains no text of a user.

The current context is set in every thread, greenlet and coroutine that a handler runs in, but not in threads that the
handler starts itself. Tasks that outlive a successful handler no longer have it; tasks that outlive a failed one, or
one that has lost its lease, keep it, and their calls are refused.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from chatlanes.bot.calls.once import Once
from chatlanes.bot.calls.run_calls import Api, Phase
from chatlanes.bot.interrupts import Interrupts, PreviousApiCall, Shield
from chatlanes.bot.schedules import Occurrence, is_occurrence, occurrence_of
from chatlanes.bot.session import DEFAULT_PLAN, HandlerPlan, Session
from chatlanes.bot.shorthands import Shorthands
from chatlanes.bot.stored import Stored
from chatlanes.bot.timers import Migration, Timer, TimerError, Timers, When, stage_moves
from chatlanes.updates import ParsedUpdate, is_stale, number, parse, part, text_of

if TYPE_CHECKING:
    from celery_lanes.protocol import Mode
    from chatlanes.bot.calls.questions import Question
    from chatlanes.bot.stream import Stream


@dataclass(init=False, eq=False, repr=False)
class Context(Once, Shorthands):
    """One update, or with COLLECT several, passed to the handler. Everything that concerns one update, such as `kind`,
    `message` and `reply`, concerns the newest.

    Only `session` and `mode` can be assigned; any other assignment raises AttributeError. In tests,
    `Context(update, api)` needs only these two; `api` is any object with `call(method, **params)`.
    `Context([first, second], api)` has two updates.
    """

    update: dict[str, Any]
    """The update as Telegram sent it: the decoded JSON of an `Update` object. With COLLECT the newest of `updates`."""

    api: Api

    attempt: int = 1
    """1 in the first run of the update, 2 after one failure or death, and so on up to MAX_ATTEMPTS."""

    deadline_s: float | None = None
    """When UPDATE_TIMEOUT is over, in seconds of `time.monotonic()`. None: the setting is not set."""

    appended_s: float | None = None
    """When the poller or receiver got the update, in seconds of `time.monotonic()`. None: unknown."""

    stored: Stored | None = None
    """For adapters: the update's data in Redis. None: it did not come through a lane."""

    plan: HandlerPlan = DEFAULT_PLAN

    fence: int | None = None
    """A number that is greater in every later run of this update. None: it did not come through a lane.

    Store it with your own writes and refuse smaller ones, so that a stale worker cannot overwrite a newer run.
    """

    updates: Sequence[dict[str, Any]] = ()
    """All updates of this run, oldest first. Without COLLECT there is one."""

    is_late: bool = False
    """True when the update, with several each of them, had waited longer than MAX_AGE when this run began."""

    interrupts: Interrupts | None = None

    broadcasting: Callable[..., str] | None = None

    default_mode: Mode = "queue"
    """The mode of a chat that has chosen none: what COLLECT and INTERRUPT say."""

    question: Question | None = None
    """The question whose answer this run continues with (`ctx.ask`). None: it begins with an update."""

    def __init__(
        self, update: dict[str, Any] | Sequence[dict[str, Any]], api: Api, attempt: int = 1, **fields: Any
    ) -> None:
        """`fields`: the other attributes by name. All are set in one step, because `__setattr__` refuses them."""
        if unknown := fields.keys() - self.__dataclass_fields__.keys():
            raise TypeError(f"a Context has no {min(unknown)}")
        updates = fields.pop("updates", ()) or ((update,) if isinstance(update, dict) else update)
        newest = updates[-1]
        self.__dict__.update(fields, update=newest, updates=updates, api=api, attempt=attempt, _parsed=parse(newest))

    @property
    def update_id(self) -> int:
        """The `update_id` of the update: unique for a bot, and the same in every run.

        A run that follows an interrupted one (INTERRUPT) has a newer update, and so another id.

        Raises:
            LookupError: This is a timer, which is not an update of Telegram.
        """
        if "update_id" not in self.update:
            raise LookupError(f"a {self.kind} has no update_id")
        return int(self.update["update_id"])

    @property
    def bot_id(self) -> int | None:
        """The id of the bot that got the update; it distinguishes the bots of one handler. None if `api` has no token,
        as in tests.
        """
        bot_id = str(getattr(getattr(self.api, "api", self.api), "token", "")).partition(":")[0]
        return int(bot_id) if bot_id.isdecimal() else None

    @property
    def kind(self) -> str:
        """The kind of the update, by the name of its field in Telegram's `Update`: `message`, `callback_query`, …"""
        return self._parsed.kind

    @property
    def schedule(self) -> Occurrence:
        """In a function of SCHEDULES: the `name` of the schedule, when it was `due`, in its time zone, and `late_s`,
        the seconds from then to the start of this run.

        Raises:
            LookupError: This is an update of Telegram.
        """
        if not is_occurrence(self.update):
            raise LookupError(f"an update of kind {self.kind} is not of a schedule; use ctx.schedule in its function")
        return occurrence_of(self.update, self.plan.late_s)

    @property
    def chat_id(self) -> int | None:
        """The id of the chat of the update, or of the private chat of its user if it has no chat.

        None for the few updates without both, such as polls, and in a function of SCHEDULES.
        """
        return self._parsed.home

    @property
    def user_id(self) -> int | None:
        """The id of the user who caused the update; None if Telegram names none, as in channels."""
        return self._parsed.user

    @property
    def message(self) -> dict[str, Any] | None:
        """The message that the update is about, as Telegram sent it; None if there is none.

        This is the new or edited message, or the message of the button that was pressed.
        """
        return _message_of(self._parsed)

    @property
    def text(self) -> str:
        """The text of the message or post, the caption of its photo or file, or the text of a rich message without its
        formatting; otherwise empty.

        With COLLECT the texts of all updates, oldest first, separated by newlines.
        """
        return "\n".join(self.texts)

    @property
    def texts(self) -> list[str]:
        """The texts and captions of the updates, oldest first. An update without text has none in the list."""
        return [str(text) for body in self._bodies if (text := text_of(body))]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that the updates are about, as `message`, oldest first."""
        return [found for update in self.updates if (found := _message_of(parse(update)))]

    @property
    def photos(self) -> list[dict[str, Any]]:
        """The photos of the updates, oldest first: of each the largest PhotoSize, as `ctx.download` takes it."""
        return [sizes[-1] for body in self._bodies if isinstance(sizes := body.get("photo"), list) and sizes]

    @property
    def videos(self) -> list[dict[str, Any]]:
        """The videos of the updates, oldest first, as Telegram's Video objects."""
        return self._files("video")

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The files of the updates, oldest first, as Telegram's Document objects."""
        return self._files("document")

    @property
    def audios(self) -> list[dict[str, Any]]:
        """The pieces of music of the updates, oldest first, as Telegram's Audio objects."""
        return self._files("audio")

    @property
    def voices(self) -> list[dict[str, Any]]:
        """The voice messages of the updates, oldest first, as Telegram's Voice objects."""
        return self._files("voice")

    @property
    def data(self) -> str:
        """The `callback_data` of the button that was pressed; otherwise empty."""
        return str(self._parsed.body.get("data") or "")

    @property
    def timed_out(self) -> bool:
        """True when UPDATE_TIMEOUT is over. A thread cannot be interrupted; a long loop can check this and return."""
        return self.deadline_s is not None and time.monotonic() >= self.deadline_s

    @property
    def age_s(self) -> float:
        """Seconds since the poller or receiver got the update, with COLLECT the oldest one. A replay starts again at 0;
        0 even if it is unknown.
        """
        return 0.0 if self.appended_s is None else time.monotonic() - self.appended_s

    @property
    def is_stale(self) -> bool:
        """True when Telegram no longer accepts an answer to this update, such as after 30 s for an inline query.

        False for several updates (COLLECT): only the age of the oldest is known, and the newest may still be answered.
        """
        return len(self.updates) == 1 and is_stale(self.kind, self.age_s)

    @property
    def interrupted(self) -> bool:
        """True when a newer update has ended this run (INTERRUPT): the next run gets it together with these updates.

        The next call through `ctx` raises `celery_lanes.Interrupted`, and an `async def` handler is cancelled. A
        long loop without calls can check this and return.
        """
        return self.interrupts is not None and self.interrupts.is_interrupted

    @property
    def previous_calls(self) -> list[PreviousApiCall]:
        """The Bot API calls and steps of the interrupted runs before this one, oldest first, so that this run can edit
        or delete what they sent. Empty if none was interrupted. Before an answered question, those of the run that
        asked it.

        Raises:
            celery_lanes.LeaseLost: Another worker may run this update by now.
        """
        if self.question is not None and (seen := self.question.seen_before(self.__dict__.get("asked", 0))) is not None:
            return [PreviousApiCall(*call) for call in seen]
        return [] if self.interrupts is None else self.interrupts.previous_calls

    def shield(self) -> Shield | nullcontext[None]:
        """A context manager, for `with` and in coroutines `async with`, whose block is not interrupted.

        A newer update waits for the end of the block, which then raises `celery_lanes.Interrupted`. Begin and end
        take a round trip to Redis each; without INTERRUPT they do nothing.

        Raises:
            celery_lanes.Interrupted: At the begin, the run was interrupted already, and the block is not run. At the
                end, a newer update has arrived during the block.
        """
        return nullcontext() if self.interrupts is None else Shield(self.interrupts)

    @property
    def session(self) -> dict[str, Any]:
        """The state that the bot keeps for this chat, or for the key that `Bot(session=…)` names: a JSON object.

        It is read on first access, saved once when the handler succeeds, and deleted when it is empty. It may be
        changed in place or assigned. Its JSON is limited to 1 MiB, because Redis serves no other client while it reads
        or writes it.

        Raises:
            SessionError: This update has no key for a session, or the stored session is not a JSON object.
            celery_lanes.LeaseLost: Another worker may run this update by now.
            ParkUpdate: Redis did not answer. Do not catch it; the update runs again later.
        """
        return self._session.get()

    @session.setter
    def session(self, data: dict[str, Any]) -> None:
        self._session.put(data)

    @property
    def has_read_session(self) -> bool:
        """True once the session has been read."""
        return "_session" in self.__dict__ and self._session.is_read

    @property
    def timer(self) -> Timer:
        """In `on_timer`: the timer that is due.

        Raises:
            LookupError: This is an update of Telegram.
        """
        return self._timers.running()

    def later(self, when: When, data: Any = None, name: str | None = None) -> str:
        """Set a timer of this chat: when it is due, the bot's `on_timer` is called, after the updates of the chat that
        have arrived by then.

        The timer is set when the handler has succeeded, in the step that settles the update. In `Context(update, api)`
        of a test, it is only listed by `ctx.timers()`.

        Args:
            when: Seconds or a `timedelta` from that step on, or a `datetime` with a time zone. A time in the past is
                now.
            data: A JSON value of at most 64 KiB: `ctx.timer.data`.
            name: The timer of this name, if there is one in this chat, is replaced. By default a new name.

        Returns:
            The name, for `ctx.cancel`. A later run of this update makes the same.

        Raises:
            ValueError: The time, the data or the name cannot be used, or the bot has no `on_timer`.
            TypeError: `when` or `name` is of another type.
        """
        return self._timers.set(when, data, name)

    def cancel(self, name: str) -> None:
        """Remove the timer of this name from the chat, in the step that settles the update. Nothing happens if there is
        none.

        Raises:
            ValueError: This cannot be a name. TypeError likewise.
        """
        self._timers.cancel(name)

    def timers(self) -> list[Timer]:
        """The timers of this chat that are not due yet, the next one first, as this run has changed them.

        One that this run sets in a number of seconds has an estimated time. Asks Redis; in coroutines `await` it.

        Raises:
            ValueError: The update has no chat, user or poll, such as that of a schedule.
            ParkUpdate: Redis did not answer. Do not catch it; the update runs again later.
        """
        return self._timers.all()

    def stage(self) -> None:
        """Stage the changed session for the write that settles the update. Raises SessionError and TimerError."""
        if "_timers" in self.__dict__ and self._timers.is_changed_by_hand:
            raise TimerError("this update has no lane, so its timers are not set")
        # A session that was never read has nothing to stage, unless its group becomes a supergroup: then it moves.
        if "_session" in self.__dict__ or self._parsed.migration is not None:
            self._session.stage()
        if self.stored is not None and self.default_mode != "queue" and self._parsed.migrates:
            from chatlanes.bot.calls.steering import move_mode

            move_mode(self.stored, *self._parsed.migrates)
        if self.stored is not None and self.plan.has_on_timer and self._parsed.migrates:
            stage_moves(Migration(*self._parsed.migrates), self.stored, self.plan)

    def call(self, method: str, /, **params: Any) -> Any:
        """Call any method of the Bot API and return its `result`, as decoded JSON.

        The call is made once: a later run of this update gets the same result without sending it again. Waits while
        Telegram's flood control requires it, up to FLOOD_WAIT; for a longer wait, the update is parked and runs again.

        Args:
            method: The name of the method, such as `sendMessage`.
            params: Its parameters. Dicts and lists are sent as JSON; bytes, open files and `pathlib.Path` objects are
                uploaded; None counts as not given. `uncertain="repeat"` or `"skip"` overrides UNCERTAIN_CALL for this
                call; a skipped call returns None.

        Raises:
            BotApiError: Telegram refused the call or did not answer; the subclass says which.
            celery_lanes.LeaseLost: Another worker may run this update by now. Nothing was sent.
            ValueError: The method name or a parameter cannot be sent. TypeError likewise.
        """
        return self.api.call(method, **params)

    def download(self, file: str | dict[str, Any], /, to: Path | str | None = None) -> bytes:
        """The content of a file, by its file_id or by an object that has one: `ctx.download(message["document"])`.

        With `to` the file is written to that path, completely or not at all, and b"" is returned. Telegram's server
        provides files up to 20 MB; a local Bot API server any size. A photo has several sizes; choose one:
        `message["photo"][-1]`. A rerun is harmless. Raises BotApiError, OSError, and ValueError for an object without a
        file_id.
        """
        file_id = file.get("file_id") if isinstance(file, dict) else file
        if not isinstance(file_id, str):
            raise ValueError("not a file: pass a file_id, or an object of the update that has one")
        found = self.call("getFile", file_id=file_id)
        download = getattr(self.api, "download", None)
        if download is None:
            raise TypeError(f"{type(self.api).__name__} cannot download files")
        content: bytes = download(found["file_path"], None if to is None else Path(to))
        return content

    @overload
    def stream(self, tokens: AsyncIterable[str] | None = None, /, **params: Any) -> Stream: ...

    @overload
    def stream(self, tokens: Iterable[str], /, **params: Any) -> list[dict[str, Any]]: ...

    def stream(
        self,
        tokens: AsyncIterable[str] | Iterable[str] | None = None,
        /,
        *,
        draft: bool = False,
        on_interrupt: Literal["keep", "delete", "mark"] = "keep",
        **params: Any,
    ) -> Stream | list[dict[str, Any]]:
        """A message that grows while its text is written: `with ctx.stream() as out: out.write(token)`, or
        `ctx.stream(tokens)`, which returns the messages.

        In a coroutine: `async with ctx.stream() as out`, or `await ctx.stream(tokens)`.
        The text is shown in one message, or in several if it is longer than Telegram allows. Intermediate texts are
        shown unformatted; the final text has the `parse_mode` or entities, and the buttons.

        Args:
            tokens: The texts, one after the other. In a coroutine, an asynchronous iterator of them.
            draft: In private chats, show the intermediate texts by sendMessageDraft.
            on_interrupt: What becomes of the messages if the stream is interrupted by a newer update.
            params: Other parameters of sendMessage.

        Raises:
            chatlanes.bot.addressing.NoChatError: The update has no chat, or its chat accepts no stream.
            ValueError: `on_interrupt` is none of these.
            TypeError: `tokens` is not an iterator of texts; in a coroutine, not an asynchronous one.
        """
        from chatlanes.bot.event_loop import is_in_coroutine
        from chatlanes.bot.stream import Stream

        run = self.api, self.update, self.plan.stream_first
        stream = Stream(*run, tokens, self.plan.can_stop, draft=draft, on_interrupt=on_interrupt, **params)
        return stream if tokens is None or is_in_coroutine() else stream.write_all()

    def broadcast(
        self,
        to: Iterable[int] | Literal["sessions"],
        method: str | None = None,
        /,
        *,
        handler: str | None = None,
        rate: float | None = None,
        paid: bool = False,
        **params: Any,
    ) -> str:
        """Call a method for each of many chats, each in its own lane, or run a function with each chat's ctx.

        It starts when this update is settled, once, even if the update runs again. Returns its id, for
        `celery -A tasks lanes broadcast status ID`. In an `async def` handler: `await ctx.broadcast(…)`.

        Args:
            to: The ids of the chats, or `"sessions"` for every chat that has a session. Without any, it ends at once.
            method: The method, such as `sendMessage`, and `params` its parameters, as JSON allows them.
            handler: Instead of a method: the import path `module:function` of a function that takes a ctx.
            rate: The recipients per second, instead of BROADCAST_RATE.
            paid: Pass allow_paid_broadcast, for rates above 30; Telegram charges Stars for it.

        Raises:
            chatlanes.broadcasts.RecipientsError: One is not a chat id, or there are more than a million.
            chatlanes.broadcasts.RateError: The rate is above 30 and not paid.
            LookupError: The update did not come through a lane.
        """
        if self.broadcasting is None:
            raise LookupError("ctx.broadcast needs an update that came through a lane")
        return self.broadcasting(to, method, handler, rate, paid, params)

    @cached_property
    def _session(self) -> Session:
        return Session(self.update, self.plan, self.stored)

    @cached_property
    def _timers(self) -> Timers:
        return Timers(self.update, self.plan, self.stored)

    def __setattr__(self, name: str, value: Any) -> None:
        """Only the session and the mode can be assigned: a misspelled name would be lost silently."""
        if name not in ("session", "mode"):
            raise AttributeError(f"ctx.{name} cannot be assigned; store your own data in ctx.session")
        super().__setattr__(name, value)

    @property
    def _bodies(self) -> Iterator[dict[str, Any]]:
        if len(self.updates) == 1:
            return iter((self._parsed.body,))
        return (parse(update).body for update in self.updates)

    def _files(self, field: str) -> list[dict[str, Any]]:
        return [found for body in self._bodies if (found := part(body, field))]

    def __repr__(self) -> str:
        updates = "" if len(self.updates) == 1 else f"{len(self.updates)} updates, "
        numbered = f"{self.kind} {self.update.get('update_id')}"
        return f"Context({updates}{numbered}, chat {self.chat_id}, attempt {self.attempt})"


def _message_of(parsed: ParsedUpdate) -> dict[str, Any] | None:
    return parsed.place if number(parsed.place.get("message_id")) is not None else None


class _Handled:
    """The current context, shared by all tasks of a handler: they copy the variable, but not this object."""

    def __init__(self, ctx: Context | None, outer: _Handled | None) -> None:
        self._ctx, self._outer = ctx, outer

    @property
    def ctx(self) -> Context | None:
        """None when the handler, or the outer one, has ended."""
        return None if self._outer is not None and self._outer.ctx is None else self._ctx

    def end(self) -> None:
        if self._outer is None:
            self._ctx = None


_CURRENT: ContextVar[_Handled | None] = ContextVar("current update", default=None)


def current() -> Context:
    """The context of the current update. Raises LookupError outside a handler."""
    if (ctx := current_or_none()) is None:
        raise LookupError("no update is being handled here: current() works inside of a handler")
    return ctx


def current_or_none() -> Context | None:
    """The context of the current update; None outside a handler."""
    handled = _CURRENT.get()
    return None if handled is None else handled.ctx


@contextmanager
def handling(ctx: Context | None) -> Iterator[None]:
    """Sets the current context around a handler. None: code inside has no current update."""
    outer = None if ctx is None else _CURRENT.get()
    handled = _Handled(ctx, None if outer is None or outer.ctx is None else outer)
    token = _CURRENT.set(handled)
    try:
        yield
        if not _has_failed(ctx):
            handled.end()
    finally:
        _CURRENT.reset(token)


def _has_failed(ctx: Context | None) -> bool:
    """True if the run has failed or lost its lease, although its handler has returned."""
    life = getattr(getattr(ctx, "api", None), "life", None)
    return life is not None and life.phase is Phase.FAILED
