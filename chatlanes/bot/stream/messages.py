"""The messages of one stream at Telegram, one for each piece of its text.

Guarantees that a later run continues the messages of an earlier one: the first sending of each is journaled under its
number, not under its text. Its record is replaced after each edit, so that it holds the text that is shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chatlanes.bot.stream.pacing import StreamPace
from chatlanes.bot.stream.sender import Held, PlainSender, Sender, Sent
from chatlanes.bot.stream.splitting import TextPiece
from chatlanes.telegram.errors import BadRequest, NotModified

#: The place of a message in the journal: its number, and how often it was sent anew because a user had deleted it.
PLACE = re.compile(r"part(\d+):(\d+)")
#: The place of the whole text, recorded when the stream ended.
TEXT = "text1"
#: The place in the journal of the record that the final text is delivered, and the name of this record.
END, DELIVERED = "end1", "text:delivered"

#: Parameters of sendMessage for the first message of a stream only.
_FIRST = frozenset({"reply_parameters", "reply_to_message_id", "allow_sending_without_reply", "message_effect_id"})
#: Parameters of sendMessage that an edit takes too.
_OF_EDITS = ("business_connection_id", "link_preview_options", "disable_web_page_preview")
#: Telegram's descriptions of a message that was deleted, or that cannot be edited any more.
_GONE = ("message to edit not found", "message_id_invalid", "message can't be edited")


@dataclass
class StreamPart:
    """One message. `shown`: its text as it was last sent; None: unknown. `copies`: how often it was sent."""

    message: dict[str, Any] | None = None
    shown: str | None = None
    copies: int = 0
    what: str = ""
    takes_edits: bool = True


class StreamMessages:
    """`target`: the chat, topic and business connection; `options`: other parameters of sendMessage."""

    def __init__(
        self, sender: Sender | PlainSender, target: dict[str, Any], options: dict[str, Any], on_interrupt: str
    ) -> None:
        self._sender = sender
        self._target = target
        markup = options.get("reply_markup")
        self._buttons = {"reply_markup": markup} if isinstance(markup, dict) and "inline_keyboard" in markup else {}
        self._options = {name: value for name, value in options.items() if name not in self._buttons}
        self._what = f"sendMessage:stream-{on_interrupt}"
        self._parts: dict[int, StreamPart] = {}
        self.earlier_text: dict[str, Any] | None = None

    def load(self) -> None:
        """Read what earlier runs sent. Raises ParkUpdate."""
        found = self._sender.recorded()
        text = found.get(TEXT)
        self.earlier_text = text.outcome if text else None
        matched = ((PLACE.fullmatch(place), call) for place, call in found.items())
        places = [(int(match[1]), int(match[2]), call) for match, call in matched if match]
        for number, copy, call in sorted(places, key=lambda each: each[:2]):
            part = self._part(number)
            part.message, part.copies, part.what = call.outcome if call.is_done else None, copy, call.what
            part.copies -= not call.is_done  # it is sent at the same place

    def result(self) -> list[dict[str, Any]]:
        return [part.message for _, part in sorted(self._parts.items()) if part.message is not None]

    def is_shown(self, number: int, text: str) -> bool:
        """True if an attempt would change nothing. Telegram ignores space at the end."""
        part = self._part(number)
        return not part.takes_edits or (part.shown is not None and part.shown.rstrip() == text.rstrip())

    def attempt(self, number: int, text: str) -> Sent | Held:
        """Show an intermediate text, unformatted. Raises BotApiError, LeaseLost and ParkUpdate."""
        part = self._part(number)
        if part.message is None:
            answer = self._sender.attempt("sendMessage", self._sent(number, text), *self._opening(number))
            if isinstance(answer, Sent):
                self._opened(part, answer.result, text if answer.is_new else None)
            return answer
        try:
            answer = self._sender.attempt("editMessageText", self._edited(part, text))
        except NotModified:
            answer = Sent(None)
        except BadRequest:  # the final text, which is sent in any case, deals with it
            part.takes_edits = False
            return Sent(None)
        if isinstance(answer, Sent):
            self._changed(number, answer.result, text)
        return answer

    def record_text(self, text: str, entities: Sequence[dict[str, Any]] | None) -> None:
        """Record the whole text, so that a later run need not write it again."""
        self._sender.record(TEXT, "text:stream", {"text": text, "entities": entities})

    def record_end(self) -> None:
        """Record that the final text is delivered: an interrupt leaves this stream as it is."""
        self._sender.record(END, DELIVERED, True)

    def finish(self, pieces: list[TextPiece], pace: StreamPace) -> Iterator[float]:
        """Deliver the final text: yields how long to wait before each request. Raises what a call raises."""
        for number, piece in enumerate(pieces, 1):
            buttons = self._buttons if number == len(pieces) else {}
            if not buttons and piece.is_plain and self._part(number).shown == piece.text:
                continue
            yield pace.wait_s(time.monotonic())
            self._finish(number, piece, buttons)
            pace.sent(time.monotonic())
        for number in sorted(self._parts, reverse=True):
            if number > len(pieces):
                self._delete(number)

    def _finish(self, number: int, piece: TextPiece, buttons: dict[str, Any]) -> None:
        part, content = self._part(number), {**_formatting(piece), **buttons}
        if part.message is not None:
            try:
                edited = {**self._edited(part, piece.text), **content}
                self._changed(number, self._sender.call("editMessageText", edited, f"final{number}"), piece.text)
            except NotModified:
                part.shown = piece.text
            except BadRequest as error:
                if not any(text in error.description.lower() for text in _GONE):
                    raise
                part.message = None
        if part.message is None:
            sent = {**self._sent(number, piece.text), **content}
            self._opened(part, self._sender.call("sendMessage", sent, *self._opening(number)), piece.text)

    def _delete(self, number: int) -> None:
        """Delete a message of an earlier run, whose text was longer."""
        part = self._parts.pop(number)
        if part.message is None:
            return
        connection, message_id = self._target.get("business_connection_id"), part.message.get("message_id")
        try:
            if connection is None:
                named = {"chat_id": self._target["chat_id"], "message_id": message_id}
                self._sender.call("deleteMessage", named, f"delete{number}")
            else:
                named = {"business_connection_id": connection, "message_ids": [message_id]}
                self._sender.call("deleteBusinessMessages", named, f"delete{number}")
        except BadRequest:  # it is deleted already
            pass

    def _part(self, number: int) -> StreamPart:
        return self._parts.setdefault(number, StreamPart(what=self._what))

    def _opening(self, number: int) -> tuple[str, str]:
        """The place and the content of a sending in the journal. They do not depend on the text."""
        part = self._part(number)
        return f"part{number}:{part.copies + 1}", part.what.partition(":")[2]

    def _opened(self, part: StreamPart, message: Any, text: str | None) -> None:
        part.message = message if isinstance(message, dict) else {}
        part.copies += 1
        part.shown, part.takes_edits = text, True

    def _changed(self, number: int, message: Any, text: str) -> None:
        part = self._part(number)
        part.shown = text
        if isinstance(message, dict):
            part.message = message
            self._sender.record(f"part{number}:{part.copies}", part.what, message)

    def _sent(self, number: int, text: str) -> dict[str, Any]:
        options = {k: v for k, v in self._options.items() if k != "parse_mode" and (number == 1 or k not in _FIRST)}
        return {**self._target, **options, "text": text}

    def _edited(self, part: StreamPart, text: str) -> dict[str, Any]:
        known = {**self._target, **self._options}
        kept = {name: known[name] for name in _OF_EDITS if name in known}
        message_id = (part.message or {}).get("message_id")
        return {"chat_id": known["chat_id"], "message_id": message_id, **kept, "text": text}


def _formatting(piece: TextPiece) -> dict[str, Any]:
    found = {"entities": piece.entities, "parse_mode": piece.parse_mode}
    return {name: value for name, value in found.items() if value}
