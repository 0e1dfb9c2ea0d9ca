"""Keeps, deletes or marks the messages of an interrupted stream (`on_interrupt`).

The next run does this, because an interrupted run can change nothing any more. The record of each message contains the
choice and the text that was shown last (messages.py).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, get_args

from chatlanes.bot.calls.journal import RecordedCall
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.stream.messages import END, PLACE
from chatlanes.bot.stream.splitting import LIMIT, units
from chatlanes.lanes import Kind, PreviousCall
from chatlanes.telegram.errors import BadRequest, Forbidden

#: `keep` leaves the messages as they are, `delete` deletes them, `mark` adds MARK to the last one.
OnInterrupt = Literal["keep", "delete", "mark"]
CHOICES = get_args(OnInterrupt)

MARK = " ⏹"

#: The series of the calls made here, in the journal of the next run.
SERIES = "interrupt/"


def finish_interrupted(calls: Calls, previous: Iterable[PreviousCall]) -> None:
    """Apply the choices of the streams that earlier runs left open. Call it before the handler. Raises what a call
    raises.
    """
    runs: dict[int, dict[str, RecordedCall]] = defaultdict(dict)
    for call in previous:
        outcome = None if call.outcome is None else json.loads(call.outcome)
        state = Kind.DONE.value if call.outcome is not None else ""
        runs[call.fence][call.position] = RecordedCall(state, call.what, outcome)
    # A run whose handler had begun to make calls had done this for the runs before it.
    last_handled = max(fence for fence, made in runs.items() if any(not place.startswith(SERIES) for place in made))
    apply_on_interrupt(calls.in_series(SERIES), runs[last_handled])


def apply_on_interrupt(calls: Calls, previous: Mapping[str, RecordedCall]) -> None:
    """Delete or mark the messages of the streams that were not delivered when the previous run was interrupted.

    `previous` are the calls of that run: place in its journal -> record. `calls` are those of the next run, in a series
    of their own. Does nothing for a stream whose final text was delivered. Raises what a call raises.
    """
    for stream, places in sorted(_open_streams(previous).items()):
        newest = {_number(place)[0]: previous[stream + place] for place in places}
        for number, call in sorted(newest.items()):
            choice = call.what.rpartition("-")[2]
            with suppress(BadRequest, Forbidden):  # the user has deleted it, or has blocked the bot
                if choice == "delete":
                    _delete(calls, call.outcome)
                elif choice == "mark" and number == max(newest):
                    _mark(calls, call.outcome)


def _open_streams(previous: Mapping[str, RecordedCall]) -> dict[str, list[str]]:
    """Series of a stream -> the places of its messages, in order."""
    found: dict[str, list[str]] = {}
    for place, call in previous.items():
        series, colon, rest = place.partition(":")
        if colon and PLACE.fullmatch(rest) and call.is_done and call.outcome and f"{series}:{END}" not in previous:
            found.setdefault(series + colon, []).append(rest)
    return {series: sorted(places, key=_number) for series, places in found.items()}


def _number(place: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", place)]


def _delete(calls: Calls, message: dict[str, Any]) -> None:
    if connection := message.get("business_connection_id"):
        ids = [message["message_id"]]
        calls.call("deleteBusinessMessages", business_connection_id=connection, message_ids=ids)
    else:
        calls.call("deleteMessage", chat_id=message["chat"]["id"], message_id=message["message_id"])


def _mark(calls: Calls, message: dict[str, Any]) -> None:
    text = message.get("text", "")
    while units(text + MARK) > LIMIT:
        text = text[:-1]
    calls.call(
        "editMessageText",
        chat_id=message["chat"]["id"],
        message_id=message["message_id"],
        business_connection_id=message.get("business_connection_id"),
        text=text + MARK,
    )
