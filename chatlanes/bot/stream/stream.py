"""`ctx.stream()`: a message that grows while its text is written.

Guarantees that `write` never waits for the network, that the final text is delivered exactly as written when the block
ends without an error, and that no request is made after the block has ended. A write only appends to a list; an error
of an intermediate request is raised at the next write.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, TypeVar
from zlib import crc32

from celery_lanes.errors import LeaseLost
from chatlanes.bot.addressing import answer_to
from chatlanes.bot.calls.run_calls import Api, Calls, Lifecycle, Phase
from chatlanes.bot.event_loop import blocking_executor, is_in_coroutine
from chatlanes.bot.stream import sender as times
from chatlanes.bot.stream.messages import CHOICES, OnInterrupt, StreamMessages
from chatlanes.bot.stream.sender import Held, PlainSender, Sender, SentRequest, StreamPace
from chatlanes.bot.stream.splitting import TextPiece, split, split_entities, split_markup
from chatlanes.telegram.errors import BadRequest, BotApiError, NetworkError, NotFound, ServerError
from chatlanes.updates import parse

T = TypeVar("T")

#: How often a stream of a coroutine checks whether its run has failed.
CHECK_EVERY_S = 1.0
#: Drafts have numbers that fit into 31 bits; this many are reserved for one update.
DRAFTS = 16


class Stream:
    """One text, shown in a chat while it is written. Made by `ctx.stream()`.

    With `with` in a function, with `async with` or `await` in a coroutine.
    """

    def __init__(
        self,
        api: Api,
        update: dict[str, Any],
        first_chars: int,
        tokens: AsyncIterable[str] | Iterable[str] | None = None,
        can_stop: bool = False,
        /,
        *,
        draft: bool = False,
        on_interrupt: OnInterrupt = "keep",
        **params: Any,
    ) -> None:
        if on_interrupt not in CHOICES:
            raise ValueError(f"on_interrupt={on_interrupt!r}: use 'keep', 'delete' or 'mark'")
        given = {k: v for k, v in answer_to(parse(update), "sendMessage", params).items() if v is not None}
        target = {name: given.pop(name) for name in _TARGET if name in given}
        options = given
        pace = StreamPace(target["chat_id"], first_chars)
        sender, number = _sender(api, pace.interval_s)
        self._life = api.life if isinstance(api, Calls) else Lifecycle()
        self._tokens = tokens
        self._feed = Feed(
            sender,
            StreamMessages(sender, target, options, on_interrupt),
            pace,
            parse_mode=options.get("parse_mode"),
            typing=_typing(target, options),
            draft=_draft(update, target, number, can_stop) if draft else None,
        )
        self._is_open = self._is_closing = False
        if tokens is not None:
            self._check_tokens(tokens)
        self._driver: threading.Thread | asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """The text written so far."""
        return self._feed.text

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages sent, as Telegram returned them. Complete when the block has ended."""
        return self._feed.messages.result()

    @property
    def is_complete(self) -> bool:
        """True if an earlier run of the update wrote the whole text. If this run writes nothing, that text is
        delivered.
        """
        return self._feed.messages.earlier_text is not None

    def write(self, text: str, /) -> None:
        """Add to the text. Never waits.

        Raises:
            BotApiError: Telegram refused the message; for example, the user has blocked the bot.
            celery_lanes.LeaseLost: Another worker may run this update by now.
            ValueError: The block has ended or has not begun.
        """
        self._check()
        if not isinstance(text, str):
            raise TypeError(f"write a text to a stream, not a {type(text).__name__}")
        self._feed.write(text)

    def replace(self, text: str, /, *, entities: Sequence[dict[str, Any]] | None = None) -> None:
        """Replace the whole text, for example by one with formatting: `entities` as in sendMessage. Never waits. Raises
        what `write` raises.
        """
        self._check()
        self._feed.replace(text, entities)

    def _check_tokens(self, tokens: Any) -> None:
        if not is_in_coroutine():
            if isinstance(tokens, str) or not isinstance(tokens, Iterable):
                raise TypeError(f"ctx.stream(tokens) needs an iterator of texts, not a {type(tokens).__name__}")
            return
        if not isinstance(tokens, AsyncIterable):
            raise TypeError(
                f"await ctx.stream(tokens) needs an asynchronous iterator of texts, not a {type(tokens).__name__}: "
                "write the texts of another one in a block, async with ctx.stream() as out"
            )
        self._life.expect_await("ctx.stream(tokens)", lambda: self._is_open)

    def _check(self) -> None:
        if not self._is_open or self._is_closing:
            raise ValueError("write to a stream inside of its block: with ctx.stream() as out")
        if self._feed.error is not None:
            raise self._feed.error

    # -- in a function

    def write_all(self) -> list[dict[str, Any]]:
        """Write the tokens, and return the messages."""
        assert isinstance(self._tokens, Iterable)  # noqa: S101
        with self:
            for token in () if self.is_complete else self._tokens:
                self.write(token)
        return self.messages

    def __enter__(self) -> Stream:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise TypeError("in a coroutine, write `async with ctx.stream() as out`")
        self._feed.messages.load()
        self._woken = threading.Event()
        self._feed.wake = self._woken.set
        self._driver = threading.Thread(target=copy_context().run, args=(self._send,), name="stream", daemon=True)
        self._is_open = True
        self._driver.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert isinstance(self._driver, threading.Thread)  # noqa: S101
        self._is_closing = True
        self._woken.set()
        self._driver.join()
        if error is None:
            for wait_s in self._feed.finishing():
                time.sleep(wait_s)

    def _send(self) -> None:
        while not self._is_closing:
            wait_s = self._feed.wait_s()
            if wait_s == 0:
                self._feed.act()
            else:
                self._woken.wait(wait_s)
                self._woken.clear()

    # -- in a coroutine

    async def __aenter__(self) -> Stream:
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        if self._life.is_open:
            self._life.add(self._ended)  # the run waits for a stream in a task that it does not await
        try:
            await self._elsewhere(self._feed.messages.load)
        except BaseException:
            self._end()
            raise
        self._event = asyncio.Event()
        self._feed.wake = partial(loop.call_soon_threadsafe, self._event.set)
        self._is_open = True
        self._driver = asyncio.create_task(self._send_async())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert isinstance(self._driver, asyncio.Task)  # noqa: S101
        self._is_closing = True
        self._event.set()
        try:
            await self._driver
            if error is None:
                steps = self._feed.finishing()
                while (wait_s := await self._elsewhere(partial(next, steps, None))) is not None:
                    await asyncio.sleep(wait_s)
        finally:
            self._end()

    def __await__(self) -> Generator[Any, None, list[dict[str, Any]]]:
        return self._written().__await__()

    async def _written(self) -> list[dict[str, Any]]:
        if self._tokens is None:
            raise TypeError("await ctx.stream(tokens) needs an asynchronous iterator of texts")
        assert isinstance(self._tokens, AsyncIterable)  # noqa: S101
        async with self:
            if not self.is_complete:
                async for token in self._tokens:
                    self.write(token)
        return self.messages

    async def _send_async(self) -> None:
        while not self._is_closing:
            if self._life.phase is Phase.FAILED:
                self._feed.error = LeaseLost("the run of this stream has failed; the next run continues it")
                self._end()
                return
            wait_s = self._feed.wait_s()
            if wait_s == 0:
                await self._elsewhere(self._feed.act)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_EVERY_S if wait_s is None else min(wait_s, CHECK_EVERY_S)):
                    await self._event.wait()
            self._event.clear()

    async def _elsewhere(self, function: Callable[[], T]) -> T:
        """Call it on another thread. If the caller is cancelled, the run waits for the end of the call."""
        made = blocking_executor().call(function)
        self._life.add(made)
        result: T = await asyncio.shield(made)
        return result

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


#: The parameters that name the place of a message.
_TARGET = ("chat_id", "business_connection_id", "message_thread_id", "direct_messages_topic_id")


def _sender(calls: Api, interval_s: float) -> tuple[Sender | PlainSender, int]:
    """The sender, and the number of the stream in its run, from 1."""
    if not isinstance(calls, Calls) or calls.journal is None or calls.gate is None:
        return PlainSender(calls), 1
    if not calls.life.is_open:
        return PlainSender(calls.reserved("sendMessage")), 1
    series = calls.journal.next_series("stream")
    return Sender(calls, calls.journal, calls.gate, series, interval_s), int(series.rpartition("stream")[2][:-1])


def _typing(target: dict[str, Any], options: dict[str, Any]) -> dict[str, Any] | None:
    """The parameters of sendChatAction. None for an ephemeral message, because the whole group would see it."""
    if "ephemeral_message_parameters" in options:
        return None
    return {k: v for k, v in target.items() if k != "direct_messages_topic_id"} | {"action": "typing"}


def _draft(update: dict[str, Any], target: dict[str, Any], number: int, can_stop: bool) -> dict[str, Any] | None:
    """The parameters of sendMessageDraft; None where Telegram has no drafts. `can_stop` shows a Stop button."""
    chat = target["chat_id"]
    if not isinstance(chat, int) or chat < 0 or target.keys() - {"chat_id", "message_thread_id"}:
        return None
    number_of_update = update.get("update_id", crc32(repr(update).encode()))  # a timer has none
    named = {**target, "draft_id": (int(number_of_update) * DRAFTS + number) % 0x7FFFFFFF + 1}
    return named | ({"can_stop": True} if can_stop else {})


log = logging.getLogger(__name__)

_NEVER = float("inf")


class Feed:
    """The state of one stream: the text that is written, the text that is shown, and the next request. `typing` and
    `draft` are the parameters of sendChatAction and sendMessageDraft; None: they are not used.
    """

    def __init__(
        self,
        sender: Sender | PlainSender,
        messages: StreamMessages,
        pace: StreamPace,
        *,
        parse_mode: str | None,
        typing: dict[str, Any] | None,
        draft: dict[str, Any] | None,
    ) -> None:
        self.messages = messages
        self.error: BaseException | None = None
        self.wake: Callable[[], object] = lambda: None
        self._sender, self._pace = sender, pace
        self._parse_mode, self._typing, self._draft = parse_mode, typing, draft
        self._drafted = ""
        self._redraft_s = _NEVER  # when the draft is sent again, because Telegram would no longer show it
        self._tokens: list[str] = []
        self._entities: Sequence[dict[str, Any]] | None = None
        self._length = self._version = 0
        self._shown_version = 0
        self._began_s: float | None = None  # when the first visible text was written
        self._wake_length: float = _NEVER

    # -- the writer

    @property
    def text(self) -> str:
        return _whole("".join(self._tokens))

    def write(self, token: str) -> None:
        self._tokens.append(token)
        self._length += len(token)
        self._written(token)

    def replace(self, text: str, entities: Sequence[dict[str, Any]] | None) -> None:
        self._tokens, self._entities, self._length = [text], entities, len(text)
        self._written(text)

    def _written(self, text: str) -> None:
        self._version += 1
        if self._began_s is None and text and not text.isspace():
            self._began_s = time.monotonic()
        if self._length >= self._wake_length:
            self._wake_length = _NEVER
            self.wake()

    # -- the sender

    def wait_s(self) -> float | None:
        """Until `act` has something to do; None: until the writer wakes it."""
        if self.error is not None:
            return None
        # Set before the rest is read: a later write either wakes the sender or is seen below.
        if self._version == self._shown_version or self._began_s is None:
            self._wake_length = 0
        else:
            is_timed = self._pace.is_shown or self._length >= self._pace.first_chars
            self._wake_length = _NEVER if is_timed else self._pace.first_chars
        due = [due_s for due_s in (self._text_due_s(), self._typing_due_s()) if due_s is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _text_due_s(self) -> float | None:
        due_s = self._pace.text_due_s(self._length, self._began_s)
        if due_s is None or self._version != self._shown_version:
            return due_s
        return max(due_s, self._redraft_s) if self._draft and self._drafted else None

    def act(self) -> None:
        """Make the request that is due. A network or server error is tried again later; any other ends the stream."""
        text_s, now_s = self._text_due_s(), time.monotonic()
        typing_s = self._typing_due_s()
        try:
            if text_s is not None and text_s <= now_s:
                self._show()
            elif typing_s is not None and typing_s <= now_s:
                self._type()
        except (NetworkError, ServerError):
            self._pace.failed(time.monotonic())
        except BaseException as error:
            self.error = error

    def _typing_due_s(self) -> float | None:
        return self._pace.typing_due_s() if self._typing else None

    def _type(self) -> None:
        assert self._typing is not None  # noqa: S101
        self._pace.typed(time.monotonic())
        with suppress(BotApiError):
            self._sender.attempt("sendChatAction", self._typing)

    def _show(self) -> None:
        """Show the first piece that is not up to date."""
        version, pieces = self._version, split(self.text)
        for number, piece in enumerate(pieces, 1):
            if not self._is_shown(number, piece, is_last=number == len(pieces)):
                answer = self._attempt(number, piece, is_last=number == len(pieces))
                if isinstance(answer, Held):
                    self._pace.held(time.monotonic(), answer.wait_s, is_in_turn=answer.is_in_turn)
                    return
                self._pace.sent(time.monotonic())
                if number < len(pieces):
                    return
        self._shown_version = version

    def _is_shown(self, number: int, piece: TextPiece, *, is_last: bool) -> bool:
        if is_last and self._draft:
            return self._drafted == piece.text and time.monotonic() < self._redraft_s
        return self.messages.is_shown(number, piece.text)

    def _attempt(self, number: int, piece: TextPiece, *, is_last: bool) -> SentRequest | Held:
        if not (is_last and self._draft):
            return self.messages.attempt(number, piece.text)
        try:
            answer = self._sender.attempt("sendMessageDraft", {**self._draft, "text": piece.text})
        except (BadRequest, NotFound) as error:
            log.info("no draft is shown, because %s; the message is edited instead", error)
            self._draft = None
            return self.messages.attempt(number, piece.text)
        if isinstance(answer, SentRequest):
            self._drafted, self._redraft_s = piece.text, time.monotonic() + times.DRAFT_S
            if "can_stop" in self._draft:
                self.messages.record_draft(piece.text)
        return answer

    # -- the end

    def finishing(self) -> Iterator[float]:
        """Deliver the final text: yields how long to wait before each request. Raises what a call raises."""
        if self.error is not None:
            raise self.error
        text, entities, earlier = self.text, self._entities, self.messages.earlier_text
        if earlier and not self._version:
            text, entities = earlier["text"], earlier["entities"]
            self._tokens = [text]
        else:
            self.messages.record_text(text, entities)
        pieces = self._pieces(text, entities)
        if not self._pace.is_shown and self.messages.is_delivered(pieces):
            return
        try:
            yield from self.messages.finish(pieces, self._pace)
        except BadRequest as error:
            if "can't parse entities" not in error.description.lower():
                raise
            log.warning("a stream's final text is sent without formatting, because its markup is invalid: %s", error)
            yield from self.messages.finish(split(text), self._pace)
        self.messages.record_end(pieces)

    def _pieces(self, text: str, entities: Sequence[dict[str, Any]] | None) -> list[TextPiece]:
        if entities:
            return split_entities(text, entities)
        return split_markup(text, self._parse_mode) if self._parse_mode else split(text)


def _whole(text: str) -> str:
    """The text with the halves of surrogate pairs joined, which may arrive in two tokens."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
