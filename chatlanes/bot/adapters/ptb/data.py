"""chat_data, user_data and conversations of python-telegram-bot: read before an update, stored with it.

An update sees the data of all updates before it, on any worker; a failed attempt stores nothing. storage_json.py lists
the types that can be stored; bot_data is local to each process. An application's own persistence is used, except one
for a single process. Memory is proportional to the running updates.

The `conversation_timeout` of a conversation that has TIMEOUT handlers is a timer, set with each update that it handles;
otherwise it limits how long the states are stored. A timer that a later update has overtaken does nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from telegram import Update
from telegram.ext import Application, BaseHandler, ConversationHandler, DictPersistence, Job, PicklePersistence

from chatlanes.bot.adapters import storage, storage_json
from chatlanes.bot.adapters.ptb.job_storage import KIND, TIMEOUT, plain
from chatlanes.bot.context import Context, current
from chatlanes.bot.timers import Timers

log = logging.getLogger(__name__)

AnyApplication = Application[Any, Any, Any, Any, Any, Any]

#: A timer fires after its time if no worker runs: the conversation is kept for it.
TIMER_IS_LATE_S = 24 * 3600


class Conversation(NamedTuple):
    """One ConversationHandler. Its name is the same in every process: its own, or its position among the handlers.
    `timeout_s`: how long after the last update that it handled it ends.
    """

    name: str
    handler: ConversationHandler[Any]
    timeout_s: float | None

    @property
    def has_timer(self) -> bool:
        """True if handlers run when it ends by its timeout."""
        return self.timeout_s is not None and bool(self.handler.states.get(ConversationHandler.TIMEOUT))

    def key(self, update: Update) -> tuple[int | str, ...] | None:
        """The key of the update's conversation; None if the update lacks a chat, user or message for it."""
        try:
            return self.handler._get_key(update)
        except RuntimeError:
            return None


def conversations_of(application: AnyApplication) -> list[Conversation]:
    """All ConversationHandlers, nested ones included, except those that the application's own persistence stores."""
    places: dict[int, tuple[str, ConversationHandler[Any]]] = {}
    for place, handler in _everywhere(application):
        if isinstance(handler, ConversationHandler) and not (application.persistence and handler.persistent):
            places.setdefault(id(handler), (place, handler))
    named = Counter(handler.name for _, handler in places.values())
    return [
        Conversation(
            handler.name if handler.name and named[handler.name] == 1 else place, handler, _timeout_of(handler)
        )
        for place, handler in places.values()
    ]


def wait_for_handlers(application: AnyApplication) -> None:
    """Make all handlers blocking: one with block=False could still run during the next update of its chat."""
    for _, handler in _everywhere(application):
        handler.block = True
    application.error_handlers = dict.fromkeys(application.error_handlers, True)


def _timeout_of(handler: ConversationHandler[Any]) -> float | None:
    """The conversation_timeout, which is removed from the handler: with it, the framework would look for its job queue
    and warn at each update.
    """
    timeout, handler._conversation_timeout = handler.conversation_timeout, None
    return (timeout.total_seconds() if isinstance(timeout, timedelta) else timeout) or None


def _everywhere(application: AnyApplication) -> Iterator[tuple[str, BaseHandler[Any, Any, Any]]]:
    for group, handlers in application.handlers.items():
        yield from _among(str(group), handlers)


def _among(place: str, handlers: Iterable[Any]) -> Iterator[tuple[str, BaseHandler[Any, Any, Any]]]:
    for number, handler in enumerate(handlers):
        yield (here := f"{place}.{number}"), handler
        if isinstance(handler, ConversationHandler):
            yield from _among(f"{here}.entry", handler.entry_points)
            for state, inside in handler.states.items():
                yield from _among(f"{here}.{state}", inside)
            yield from _among(f"{here}.fallback", handler.fallbacks)


class Data:
    """The chat_data or user_data of one id: a dict, or the type that ContextTypes sets.

    `place` (one of `places`) and `name` are arguments of storage.py; `value` is the value to store, or None.
    """

    ttl_s: float | None = None
    at_least_s = 0.0
    has_moved = False

    def __init__(self, of_all: Any, number: int, name: str, *places: storage.Place) -> None:
        self._of_all, self._number = of_all, number
        self.name, self.places = name, places

    @property
    def place(self) -> storage.Place:
        """With ORDER_BY=chat, user_data is stored per chat."""
        return storage.first_safe(self.places, self.places[-1])

    @property
    def value(self) -> Any:
        return self._contents or None

    def fill(self, found: Any) -> None:
        self.forget()
        self._contents.update(found or {})

    def forget(self) -> None:
        self._of_all.pop(self._number, None)

    @property
    def _contents(self) -> dict[Any, Any]:
        """The data as a dict. The framework creates it if it does not exist."""
        data = self._of_all[self._number]
        contents = data if isinstance(data, dict) else getattr(data, "__dict__", None)
        if contents is None:
            _warn_of_slots(type(data).__name__)
        return contents if contents is not None else {}


class Position:
    """The state of one conversation. The framework takes it for the job of the conversation's timeout, and removes the
    job when the conversation handles an update.
    """

    def __init__(self, conversation: Conversation, key: tuple[int | str, ...], update: Any) -> None:
        self._conversation, self.key, self._update_id = conversation, key, update.update_id
        self.handler = conversation.handler
        self._states = self.handler._conversations
        self._jobs: dict[Any, Any] = self.handler.timeout_jobs
        self.name = f"ptb:conversation:{conversation.name}:{':'.join(map(str, key))}"
        self.places = _places_of(self.handler, update)
        self.has_moved = False
        #: The update that set the timer.
        self._timer_of: int | None = None

    @property
    def place(self) -> storage.Place:
        return storage.first_safe(self.places, self.places[-1])

    @property
    def ttl_s(self) -> float | None:
        """With a timer, the timer ends the conversation."""
        return None if self._conversation.has_timer else self._conversation.timeout_s

    @property
    def at_least_s(self) -> float:
        """A timer finds it, even if SESSION_TTL is shorter and no worker runs for a while."""
        timeout_s = self._conversation.timeout_s
        return timeout_s + TIMER_IS_LATE_S if timeout_s is not None and self._conversation.has_timer else 0.0

    @property
    def value(self) -> Any:
        if self.key not in self._states:
            return None
        timer = {} if self._timer_of is None else {"timer_of": self._timer_of}
        return {"state": self._states[self.key], **timer}

    def fill(self, found: Any) -> None:
        self.forget()
        if self._conversation.timeout_s is not None:
            self._jobs[self.key] = self
        if found is not None:
            self._states[self.key] = found["state"]
            self._timer_of = found.get("timer_of")

    def forget(self) -> None:
        self._states.pop(self.key, None)
        self._jobs.pop(self.key, None)

    def schedule_removal(self) -> None:
        """Called by the framework when the conversation handles the update."""
        self.has_moved = True

    def set_timer(self) -> None:
        """Set, move or cancel the timer of the timeout with the update, if the conversation has handled it."""
        if not self.has_moved:
            return
        ctx, conversation, name = current(), self._conversation, plain(self.name)
        assert ctx.stored  # noqa: S101  its data was read
        timers = Timers(ctx.update, ctx.plan, ctx.stored)
        if conversation.has_timer and self.key in self._states:
            self._timer_of, in_ms = self._update_id, round((conversation.timeout_s or 0) * 1000)
            timers.stage(ctx.stored, KIND, name, {TIMEOUT: conversation.name, "update": ctx.update}, None, in_ms)
        elif self._timer_of is not None:
            timers.cancel(name)
            self._timer_of = None

    def is_timed_out(self, name: str) -> bool:
        """True if it is a state of this conversation, and its timer was not moved or cancelled since it was due."""
        return name == self._conversation.name and self.key in self._states and self._timer_of == self._update_id


Slot = Data | Position


def _places_of(handler: Any, update: Any) -> tuple[storage.Place, ...]:
    """The chat of the update, and its user if each user has a conversation, first if it is the same in all chats."""
    if not handler.per_user:
        return (None,)
    user = f"user:{update.effective_user.id}"
    return (None, user) if handler.per_chat else (user, None)


@cache
def _warn_of_slots(kind: str) -> None:
    log.warning("%s is not stored, because it has no __dict__: use a dict, or a class without __slots__", kind)


def replace_persistence(application: AnyApplication) -> None:
    """Replace a persistence in one file or in memory, which cannot serve several processes."""
    own = application.persistence
    if type(own) in (PicklePersistence, DictPersistence):
        application.persistence = None
        log.warning(
            "%s is neither used nor read: chat_data, user_data and conversations are stored in Redis with each update; "
            "bot_data is not stored (docs/migrate/python-telegram-bot.md explains how to import its data)",
            type(own).__name__,
        )
    elif own:
        log.warning("the application's own persistence is used: it must support several processes that write to it")


class DataKeeper:
    """Reads and stores the data of one started application."""

    def __init__(self, application: AnyApplication) -> None:
        self._application = application
        self._conversations = conversations_of(application)
        self._locks_of_chats = PerChatLock()
        self._bot_data = _names_in(application.bot_data)
        self._has_warned = bool(application.persistence)

    def read_ahead(self, ctx: Context) -> None:
        """Fetch the data that an update like this will probably need, before the framework's object is created."""
        storage.read_ahead(_places(self._slots(outline(ctx.chat_id, ctx.user_id), is_job=ctx.kind == KIND)))

    @asynccontextmanager
    async def kept(self, update: Any, *, is_job: bool = False) -> AsyncIterator[list[Slot]]:
        """Wraps the processing of an update or a job: its data is read before, staged for the settle after, then
        removed from memory.
        """
        ids = {each.id for each in (update.effective_chat, update.effective_user) if each}
        async with self._locks_of_chats.taken(ids):
            slots = self._slots(update, is_job=is_job)
            try:
                before = await _read(slots)
                yield slots
                _keep(slots, before)
                if self._application.persistence:
                    await self._application.update_persistence()
            finally:
                for each in slots:
                    each.forget()
                self._warn_of_unstored()

    def _slots(self, update: Any, *, is_job: bool) -> list[Slot]:
        """A job is not part of a conversation."""
        application, chat, user = self._application, update.effective_chat, update.effective_user
        slots: list[Slot] = []
        if chat and not application.persistence:
            slots.append(Data(application._chat_data, chat.id, "ptb:chat", None))
        if user and not application.persistence:
            slots.append(Data(application._user_data, user.id, f"ptb:user:{user.id}", f"user:{user.id}", None))
        keys = () if is_job else ((each, each.key(update)) for each in self._conversations)
        return [*slots, *(Position(each, key, update) for each, key in keys if key is not None)]

    def _warn_of_unstored(self) -> None:
        """Warn once if a handler wrote data that is not stored."""
        application = self._application
        if self._has_warned:
            return
        if names := _names_in(application.bot_data) - self._bot_data:
            self._warn("a handler set bot_data[%r]: bot_data is local to each process and not stored", min(names))
        for name, of_all in (("chat_data", application._chat_data), ("user_data", application._user_data)):
            for stranger in self._locks_of_chats.unused(of_all):
                of_all.pop(stranger, None)
                self._warn("application.%s[%d] is not stored: an update can change only its own", name, stranger)

    def _warn(self, sentence: str, *details: object) -> None:
        self._has_warned = True
        log.warning(sentence + "; store data that chats share in a database of your own", *details)


def outline(chat_id: int | None, user_id: int | None) -> Any:
    """The attributes of an Update that the storage keys usually depend on."""
    chat, user = (None if each is None else SimpleNamespace(id=each) for each in (chat_id, user_id))
    return SimpleNamespace(effective_chat=chat, effective_user=user, callback_query=None, update_id=0)


def _places(slots: Iterable[Slot]) -> list[tuple[storage.Place, str]]:
    return [(place, each.name) for each in slots for place in each.places]


async def _read(slots: Iterable[Slot]) -> dict[str, str]:
    """Load the slots; returns the value of each, encoded."""
    await storage.fetch_soon(_places(slots))
    for each in slots:
        each.fill(storage.load(each.place, each.name) if storage.is_safe(each.place) else None)
    return {each.name: storage_json.text(each.value, each.name) for each in slots}


def _keep(slots: Sequence[Slot], before: Mapping[str, str]) -> None:
    """Stage changed values, and with SESSION_TTL all that are kept with them. Raises TypeError for a value that cannot
    be encoded, and UnsafeKeyError for a key that another update could write.
    """
    for each in slots:
        if isinstance(each, Position):
            each.set_timer()
    changed = {each.name for each in slots if storage_json.text(each.value, each.name) != before[each.name]}
    has_acted = bool(changed) or any(each.has_moved for each in slots)
    for each in slots:
        is_renewed = each.has_moved or (has_acted and each.ttl_s is None and storage.expires())
        if each.name in changed or (is_renewed and each.value is not None):
            storage.keep(each.place, each.name, each.value, each.ttl_s, each.at_least_s)


def _names_in(bot_data: object) -> set[str]:
    return set(map(str, bot_data)) if isinstance(bot_data, dict) else set()


class PerChatLock:
    """Runs the updates of one process that share a chat or a user one after another, on one event loop, because the
    framework has one dict for each chat and user.
    """

    def __init__(self) -> None:
        # A lock exists as long as an update holds or waits for it.
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, ids: set[int]) -> AsyncIterator[None]:
        """Holds the locks of these ids. They are acquired in sorted order, which avoids deadlocks."""
        locks = [self._locks.setdefault(each, asyncio.Lock()) for each in sorted(ids)]
        async with AsyncExitStack() as stack:
            for lock in locks:
                await stack.enter_async_context(lock)
            yield

    def unused(self, ids: Iterable[int]) -> list[int]:
        """The ids that no update holds or waits for."""
        return [each for each in list(ids) if each not in self._locks]


class TimeoutJob(Job[Any]):
    """The job whose callback is the framework's own code for the end of a conversation."""

    id = "timeout"

    def __init__(self, handler: ConversationHandler[Any], **data: Any) -> None:
        # Without the constructor of Job, which needs APScheduler.
        self.callback, self.name = handler._trigger_timeout, handler._trigger_timeout.__name__
        self.data = SimpleNamespace(**data)  # its fields are those that _trigger_timeout reads
        self.chat_id = self.user_id = self._job = None
        self._removed, self._enabled = False, True


async def time_out(application: AnyApplication, name: str, slots: Iterable[Slot], update: Update) -> None:
    """Run the TIMEOUT handlers of a conversation with its last update, and end it."""
    for each in slots:
        if isinstance(each, Position) and each.is_timed_out(name):
            context = application.context_types.context.from_update(update, application)
            await context.refresh_data()
            known = {"update": update, "application": application, "callback_context": context}
            job = TimeoutJob(each.handler, conversation_key=each.key, **known)
            each.handler.timeout_jobs[each.key] = job
            await job._run(application)
