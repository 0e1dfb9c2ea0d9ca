"""INTERRUPT for a handler: whether its run was interrupted, the calls of interrupted runs, the shield, and arrivals.

An interrupted run can change nothing: its next call raises Interrupted, and its session and its end have no effect. An
interruption waits for the end of a shield. The journal has no parameters of calls, so the name of a deletion is
followed by its chat, or business connection, and the ids of its messages: the next run knows which are deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from types import TracebackType
from typing import Any

import celery_lanes as lanes
from chatlanes.bot.event_loop import blocking_executor
from chatlanes.telegram.client import Prepared

#: The text of a stream is in the journal too (stream/messages.py). It is not a call.
STREAM_TEXT = "text:"
#: A step (calls/steps.py); its name follows.
STEP = "step:"
#: A message of a stream with on_interrupt="delete". Unless its final text was delivered, it is deleted before
#: the next handler.
DELETED_STREAM = "sendMessage:stream-delete"
DELIVERED_STREAM = "text:delivered"


@dataclass(frozen=True, slots=True)
class PreviousApiCall:
    """A Bot API call or a step that an interrupted run had begun, and that has not failed."""

    method: str
    """The name of the method, such as `sendMessage`; of a step `step:` and its name."""

    result: Any = None
    """Its result, as decoded JSON: for `sendMessage` the message, as `ctx.edit(…, message=call.result)` takes it. None
    if it is unknown, because the run was interrupted during the call; Telegram may have carried it out."""


class Interrupts:
    """The interruptions of one run."""

    def __init__(self, delivery: lanes.Delivery) -> None:
        self.delivery = delivery
        self._lock = Lock()
        self._shields = 0

    @property
    def is_interrupted(self) -> bool:
        return self.delivery.is_interrupted

    @property
    def is_stopped(self) -> bool:
        """True if this run only ends the update, which a newer one has stopped."""
        return self.delivery.is_stopped

    def read_ahead(self) -> None:
        """Read the calls of interrupted runs, if there were any: a read in a coroutine would block the event loop."""
        with suppress(lanes.LeaseLost):
            _ = self.recorded

    @cached_property
    def recorded(self) -> list[lanes.PreviousCall]:
        """The calls and records that the interrupted runs have left in the journal. Raises LeaseLost and RedisAway."""
        return self.delivery.previous_calls()

    def read_again(self) -> list[lanes.PreviousCall]:
        """Like `recorded`, with the outcomes of calls that were in flight when their run was interrupted."""
        vars(self).pop("recorded", None)
        return self.recorded

    @property
    def previous_calls(self) -> list[PreviousApiCall]:
        """Raises LeaseLost and RedisAway."""
        deleted = deleted_by(call.what for call in self.recorded if call.outcome)
        ended = {_stream_of(call) for call in self.recorded if call.what == DELIVERED_STREAM}
        found = [
            PreviousApiCall(_method(call.what), _result(call))
            for call in self.recorded
            if not call.what.startswith(STREAM_TEXT) and (call.what != DELETED_STREAM or _stream_of(call) in ended)
        ]
        return [call for call in found if not (sent := sent_by(call.result)) or sent - deleted]

    def shield(self) -> None:
        """Raises Interrupted, LeaseLost and RedisAway; then the shield has not begun."""
        with self._lock:  # another thread's shield has begun when this returns
            if not self._shields:
                self.delivery.shield()
            self._shields += 1

    def unshield(self) -> None:
        """Raises Interrupted if a newer update waited for the end of the shield, LeaseLost and RedisAway."""
        with self._lock:
            self._shields -= 1
            if not self._shields:
                self.delivery.unshield()
        if self.is_interrupted:
            raise lanes.Interrupted(f"a newer update has ended this run of {self.delivery.id}")


def _stream_of(call: lanes.PreviousCall) -> tuple[int, str]:
    return call.fence, call.position.partition(":")[0]


def _method(what: str) -> str:
    return what if what.startswith(STEP) else what.partition(":")[0]


def _result(call: lanes.PreviousCall) -> Any:
    return json.loads(call.outcome) if call.outcome else None


class Shield:
    """`with ctx.shield():`, or `async with` in a coroutine. Shields may be nested."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        self._interrupts.shield()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._interrupts.unshield()
        except lanes.LeaseLost:
            if error is None:  # otherwise the block's own error is raised; the run is over in any case
                raise

    async def __aenter__(self) -> None:
        await blocking_executor().call(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await blocking_executor().call(partial(self.__exit__, kind, error, at))


#: A method that deletes messages, in lower case -> the parameter by which it finds them.
_WHERE = {
    "deletemessage": "chat_id",
    "deletemessages": "chat_id",
    "deleteephemeralmessage": "chat_id",
    "deletebusinessmessages": "business_connection_id",
}
_NAME = re.compile(r"[^\s:]+")

#: The chat or business connection of a message, and its id.
Place = tuple[str, str]


def deletions_of(call: Prepared) -> str:
    """`:<where>:<ids>` of a call that deletes messages; empty for any other."""
    field = _WHERE.get(call.method.lower())
    if field is None:
        return ""
    data = call.request.data
    params = json.loads(data) if isinstance(data, bytes) else data
    where = str(params.get(field, ""))
    ids = re.findall(r"\d+", str(params.get("message_ids", params.get("message_id"))))
    if "ephemeral_message_id" in params:
        ids = [_of_ephemeral(params.get("receiver_user_id"), params["ephemeral_message_id"])]
    return f":{where}:{','.join(ids)}" if ids and _NAME.fullmatch(where) else ""


def deleted_by(names: Iterable[str]) -> set[Place]:
    """The messages that calls with these names in the journal delete."""
    parts = (name.split(":") for name in names)
    return {(each[2], number) for each in parts if len(each) == 4 for number in each[3].split(",")}


def sent_by(result: Any) -> set[Place]:
    """The messages in the result of a call: one message, or a list of them. Empty if it has none."""
    found = result if isinstance(result, list) else [result]
    return {_place(each) for each in found if isinstance(each, dict) and "message_id" in each and "chat" in each}


def _place(message: dict[str, Any]) -> Place:
    where, number = message.get("business_connection_id") or message["chat"]["id"], str(message["message_id"])
    if hidden := message.get("ephemeral_message_id"):  # its message_id is 0
        number = _of_ephemeral((message.get("receiver_user") or {}).get("id"), hidden)
    return str(where), number


def _of_ephemeral(receiver: object, number: object) -> str:
    """Stands for the id of a message: two receivers may have ephemeral messages with one id."""
    return re.sub(r"[^\w-]", "", f"e{receiver}-{number}")
