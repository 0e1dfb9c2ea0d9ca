"""The messages of one stream at Telegram, one for each piece of its text.

Guarantees that a later run continues the messages of an earlier one: the first sending of each is journaled under its
number, not under its text. Its record is replaced after each edit, so that it holds the text that is shown, and names
the choice `on_interrupt`: an interrupted run can change nothing any more, so the next one keeps, deletes or marks them.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

from celery_lanes import Kind, PreviousCall
from chatlanes.bot.addressing import deletion, ephemeral_sent
from chatlanes.bot.calls.journal import RecordedCall
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.interrupts import Interrupts
from chatlanes.bot.stream.sender import Held, PlainSender, Sender, SentRequest, StreamPace
from chatlanes.bot.stream.splitting import LIMIT, TextPiece, units
from chatlanes.telegram.errors import BadRequest, Forbidden, NotModified

#: The place of a message in the journal: its number, and how often it was sent anew because a user had deleted it.
PLACE = re.compile(r"part(\d+):(\d+)")
#: The place of the whole text, recorded when the stream ended.
TEXT = "text1"
#: The place in the journal of the record that the final text is delivered, and the name of this record.
END, DELIVERED = "end1", "text:delivered"
#: The place of the text that a draft shows.
DRAFT = "draft1"

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
        self._delivered: Any = None
        self._final: set[str] = set()

    def load(self) -> None:
        """Read what earlier runs sent. Raises ParkUpdate."""
        found = self._sender.recorded()
        text = found.get(TEXT)
        self.earlier_text = text.outcome if text else None
        self._delivered = found[END].outcome if END in found else None
        self._final = {place for place in found if place.startswith("final")}
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

    def attempt(self, number: int, text: str) -> SentRequest | Held:
        """Show an intermediate text, unformatted. Raises BotApiError, LeaseLost and ParkUpdate."""
        self._change()
        part = self._part(number)
        if part.message is None:
            answer = self._sender.attempt("sendMessage", self._sent(number, text), *self._opening(number))
            if isinstance(answer, SentRequest):
                self._opened(part, answer.result, text if answer.is_new else None)
            return answer
        self._reopen(number)
        try:
            answer = self._sender.attempt(*self._edit(part, text))
        except NotModified:
            answer = SentRequest(None)
        except BadRequest:  # the final text, which is sent in any case, deals with it
            part.takes_edits = False
            return SentRequest(None)
        if isinstance(answer, SentRequest):
            self._changed(number, answer.result, text)
        return answer

    def record_text(self, text: str, entities: Sequence[dict[str, Any]] | None) -> None:
        """Record the whole text, so that a later run need not write it again."""
        self._sender.record(TEXT, "text:stream", {"text": text, "entities": entities})

    def record_draft(self, text: str) -> None:
        """Record the text that a draft shows: a draft vanishes, and if the run is stopped, the text must stay."""
        self._sender.record(DRAFT, "text:stream-draft", {**self._target, "text": text})

    def record_end(self, pieces: list[TextPiece]) -> None:
        """Record that the final text is delivered: an interrupt leaves this stream as it is."""
        self._sender.record(END, DELIVERED, self._digest(pieces))

    def is_delivered(self, pieces: list[TextPiece]) -> bool:
        """True if an earlier run delivered exactly this. Its handler may have changed the messages since."""
        if self._delivered != self._digest(pieces):
            return False
        self._parts = {number: part for number, part in self._parts.items() if number <= len(pieces)}
        return True

    def _change(self) -> None:
        """Record, before a request, that the text which an earlier run delivered may no longer be shown."""
        if self._delivered is not None and self._delivered is not True:
            self._sender.record(END, DELIVERED, True)
            self._delivered = True

    def _reopen(self, number: int) -> None:
        """Record, before an intermediate edit, that the final edit of an earlier run is to be made again."""
        if (place := f"final{number}") in self._final:
            self._sender.record(place, "text:stream-reopened", None)
            self._final.remove(place)

    def _digest(self, pieces: list[TextPiece]) -> str:
        content = json.dumps([pieces, self._buttons])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def finish(self, pieces: list[TextPiece], pace: StreamPace) -> Iterator[float]:
        """Deliver the final text: yields how long to wait before each request. Raises what a call raises."""
        self._change()
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
                method, edited = self._edit(part, piece.text)
                answer = self._sender.call(method, {**edited, **content}, f"final{number}")
                self._changed(number, answer, piece.text)
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
        method, named = deletion({"message_id": None, **part.message, **self._target})
        with suppress(BadRequest):  # it is deleted already
            self._sender.call(method, named, f"delete{number}")

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
        if message is True:  # an ephemeral message was edited
            message = {**(part.message or {}), "text": text}
        if isinstance(message, dict):
            part.message = message
            self._sender.record(f"part{number}:{part.copies}", part.what, message)

    def _sent(self, number: int, text: str) -> dict[str, Any]:
        # The parameters of an ephemeral answer prove that a user has asked for it.
        takes_all = number == 1 or "ephemeral_message_parameters" in self._options
        options = {k: v for k, v in self._options.items() if k != "parse_mode" and (takes_all or k not in _FIRST)}
        return {**self._target, **options, "text": text}

    def _edit(self, part: StreamPart, text: str) -> tuple[str, dict[str, Any]]:
        """The method that edits the message, and its parameters."""
        known, message = {**self._target, **self._options}, part.message or {}
        kept = {name: known[name] for name in _OF_EDITS if name in known}
        if ephemeral := ephemeral_sent(message):
            return "editEphemeralMessageText", {**ephemeral, **kept, "text": text}
        named = {"chat_id": known["chat_id"], "message_id": message.get("message_id")}
        return "editMessageText", {**named, **kept, "text": text}


def _formatting(piece: TextPiece) -> dict[str, Any]:
    found = {"entities": piece.entities, "parse_mode": piece.parse_mode}
    return {name: value for name, value in found.items() if value}


#: `keep` leaves the messages as they are, `delete` deletes them, `mark` adds MARK to the last one.
OnInterrupt = Literal["keep", "delete", "mark"]
CHOICES = get_args(OnInterrupt)

MARK = " ⏹"

#: The series of the calls made here, in the journal of the next run.
SERIES = "interrupt/"


#: How long the next run waits for the outcome of a sending that was in flight when its run was interrupted. It is
#: recorded by the process of that run, unless this process has died.
OUTCOME_WITHIN_S = 2.0
ASK_EVERY_S = 0.05


def finish_interrupted(calls: Calls, interrupts: Interrupts) -> None:
    """Apply the choices of the streams that earlier runs left open; what a stopped run had streamed stays, marked. Call
    it before the handler. Raises what a call raises.
    """
    last, end_s = _last_handled(interrupts.recorded), time.monotonic() + OUTCOME_WITHIN_S
    while (
        any(_is_in_flight(call, interrupts.is_stopped) for call in last.values())
        and time.monotonic() < end_s
        and not interrupts.is_interrupted
    ):
        time.sleep(ASK_EVERY_S)
        last = _last_handled(interrupts.read_again())
    (mark_stopped if interrupts.is_stopped else apply_on_interrupt)(calls.in_series(SERIES), last)


def _last_handled(previous: Iterable[PreviousCall]) -> dict[str, RecordedCall]:
    """The calls of the last run whose handler had begun to make calls. It had done this for the runs before it."""
    runs: dict[int, dict[str, RecordedCall]] = defaultdict(dict)
    for call in previous:
        outcome = None if call.outcome is None else json.loads(call.outcome)
        state = Kind.DONE.value if call.outcome is not None else ""
        runs[call.fence][call.position] = RecordedCall(state, call.what, outcome)
    return runs[max(fence for fence, made in runs.items() if any(not place.startswith(SERIES) for place in made))]


def _is_in_flight(call: RecordedCall, is_stopped: bool) -> bool:
    """True if this may have sent a message that is to be deleted or marked, and whose id is not known."""
    choices = (":stream-delete", ":stream-mark", ":stream-keep")
    return not call.is_done and call.what.endswith(choices if is_stopped else choices[:2])


def mark_stopped(calls: Calls, previous: Mapping[str, RecordedCall]) -> None:
    """Mark the end of each open stream: its last message, or the text of its draft, which becomes a message. Raises
    what a call raises.
    """
    streams, drafts = dict(_open_streams(previous)), _open_drafts(previous)
    for series in sorted(streams.keys() | drafts.keys()):
        messages, draft = streams.get(series, {}), drafts.get(series)
        last = messages[max(messages)].outcome if messages else {}
        with suppress(BadRequest, Forbidden):  # the user has deleted it, or has blocked the bot
            if draft and not last.get("text", "").startswith(draft["text"].rstrip()):
                calls.call("sendMessage", **{**draft, "text": _marked(draft["text"])})
            elif last:
                _mark(calls, last)


def apply_on_interrupt(calls: Calls, previous: Mapping[str, RecordedCall]) -> None:
    """Delete or mark the messages of the streams that were not delivered when the previous run was interrupted.

    `previous` are the calls of that run: place in its journal -> record. `calls` are those of the next run, in a series
    of their own. Does nothing for a stream whose final text was delivered. Raises what a call raises.
    """
    for _, messages in _open_streams(previous):
        for number, call in sorted(messages.items()):
            choice = call.what.rpartition("-")[2]
            with suppress(BadRequest, Forbidden):  # the user has deleted it, or has blocked the bot
                if choice == "delete":
                    _delete(calls, call.outcome)
                elif choice == "mark" and number == max(messages):
                    _mark(calls, call.outcome)


def _open_drafts(previous: Mapping[str, RecordedCall]) -> dict[str, dict[str, Any]]:
    """Series of a stream -> the parameters of the message that its draft would be."""
    places = ((place.partition(":"), call.outcome) for place, call in previous.items())
    return {
        series: outcome
        for (series, _, rest), outcome in places
        if rest == DRAFT and outcome and f"{series}:{END}" not in previous
    }


def _open_streams(previous: Mapping[str, RecordedCall]) -> Iterable[tuple[str, dict[int, RecordedCall]]]:
    """For each stream: its series, and the number of a message -> the record of its newest copy."""
    found: dict[str, dict[tuple[int, int], RecordedCall]] = defaultdict(dict)
    for place, call in previous.items():
        series, _, rest = place.partition(":")
        if (match := PLACE.fullmatch(rest)) and call.is_done and call.outcome and f"{series}:{END}" not in previous:
            found[series][int(match[1]), int(match[2])] = call
    for series, copies in sorted(found.items()):
        yield series, {number: call for (number, _), call in sorted(copies.items(), key=lambda each: each[0])}


def _delete(calls: Calls, message: dict[str, Any]) -> None:
    method, named = deletion({**message, "chat_id": message["chat"]["id"]})
    calls.call(method, **named)


def _mark(calls: Calls, message: dict[str, Any]) -> None:
    text = _marked(message.get("text", ""))
    if ephemeral := ephemeral_sent(message):
        calls.call("editEphemeralMessageText", **ephemeral, text=text)
        return
    calls.call(
        "editMessageText",
        chat_id=message["chat"]["id"],
        message_id=message["message_id"],
        business_connection_id=message.get("business_connection_id"),
        text=text,
    )


def _marked(text: str) -> str:
    while units(text + MARK) > LIMIT:
        text = text[:-1]
    return text + MARK
