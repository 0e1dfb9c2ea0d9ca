"""The state of one stream: the text that is written, the text that is shown, and the next request.

A write only appends to a list. `act` makes one request and never waits for flood control; `finishing` delivers the
final text, and waits. An error in `act` is raised at the next write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from chatlanes.bot.stream.markup import split_markup
from chatlanes.bot.stream.messages import StreamMessages
from chatlanes.bot.stream.pacing import StreamPace
from chatlanes.bot.stream.sender import Held, PlainSender, Sender, Sent
from chatlanes.bot.stream.splitting import TextPiece, split, split_entities
from chatlanes.telegram.errors import BadRequest, BotApiError, NetworkError, NotFound, ServerError

log = logging.getLogger(__name__)

_NEVER = float("inf")


class Feed:
    """`typing` and `draft` are the parameters of sendChatAction and sendMessageDraft; None: drafts are not used."""

    def __init__(
        self,
        sender: Sender | PlainSender,
        messages: StreamMessages,
        pace: StreamPace,
        *,
        parse_mode: str | None,
        typing: dict[str, Any],
        draft: dict[str, Any] | None,
    ) -> None:
        self.messages = messages
        self.error: BaseException | None = None
        self.wake: Callable[[], object] = lambda: None
        self._sender, self._pace = sender, pace
        self._parse_mode, self._typing, self._draft = parse_mode, typing, draft
        self._drafted = ""
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
        due_s = self._due_s()
        return None if due_s is None else max(0.0, due_s - time.monotonic())

    def _due_s(self) -> float | None:
        text_s = self._text_due_s()
        typing_s = self._pace.typing_due_s()
        return min((each for each in (text_s, typing_s) if each is not None), default=None)

    def _text_due_s(self) -> float | None:
        if self._version == self._shown_version:
            return None
        return self._pace.text_due_s(self._length, self._began_s)

    def act(self) -> None:
        """Make the request that is due. A network or server error is tried again later; any other ends the stream."""
        text_s, now_s = self._text_due_s(), time.monotonic()
        typing_s = self._pace.typing_due_s()
        try:
            if text_s is not None and text_s <= now_s:
                self._show()
            elif typing_s is not None and typing_s <= now_s:
                self._type()
        except (NetworkError, ServerError):
            self._pace.failed(time.monotonic())
        except BaseException as error:
            self.error = error

    def _type(self) -> None:
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
            return self._drafted == piece.text
        return self.messages.is_shown(number, piece.text)

    def _attempt(self, number: int, piece: TextPiece, *, is_last: bool) -> Sent | Held:
        if not (is_last and self._draft):
            return self.messages.attempt(number, piece.text)
        try:
            answer = self._sender.attempt("sendMessageDraft", {**self._draft, "text": piece.text})
        except (BadRequest, NotFound) as error:
            log.info("no draft is shown, because %s; the message is edited instead", error)
            self._draft = None
            return self.messages.attempt(number, piece.text)
        if isinstance(answer, Sent):
            self._drafted = piece.text
        return answer

    # -- the end

    def load(self) -> None:
        """Read what earlier runs did. Raises ParkUpdate."""
        self.messages.load()

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
        try:
            yield from self.messages.finish(self._pieces(text, entities), self._pace)
        except BadRequest as error:
            if "can't parse entities" not in error.description.lower():
                raise
            log.warning("a stream's final text is sent without formatting, because its markup is invalid: %s", error)
            yield from self.messages.finish(split(text), self._pace)
        self.messages.record_end()

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
