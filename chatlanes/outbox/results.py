"""How a call of the outbox ended, as it is stored: a JSON object, for KEPT_S after the end.

`{"state", "ended_ms", "result", "error", "why"}`: `state` one of State, `ended_ms` in ms since 1970, `result` what
Telegram returned, `error` the fields of the BotApiError with its class as `kind`, or null, `why` a sentence.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from celery_lanes.protocol import Delete, Set, Write
from chatlanes.telegram import BotApiError, errors

#: <message id>: hash: fence, NEW or APPENDED: which of several senders appends the call. Deleted when it ends
SENDING = "sending:"
#: <message id>: string: the result
SENT = "sent:"
#: How long the result, and with it the key of a call, is kept after its end.
KEPT_S = 48 * 3600
#: A longer result is not stored. Those of the Bot API have a few KB.
LONGEST = 1 << 20


class State(Enum):
    WAITING = "waiting"  # it waits in its lane, or is being made
    SENT = "sent"
    REFUSED = "refused"  # Telegram refused it
    UNCERTAIN = "uncertain"  # it may have been made: it was begun, and its outcome was lost (UNCERTAIN_CALL=skip)
    BURIED = "buried"  # it failed MAX_ATTEMPTS times, and waits among the dead letters
    UNKNOWN = "unknown"  # the id is unknown, the call ended too long ago, or an operator has dropped it


def ending(
    id_: str, ended_ms: int, state: State, *, result: Any = None, error: Exception | None = None, why: str = ""
) -> list[Write]:
    """The writes that record the end of a call; part of the commit that settles its message."""
    fields = errors.stored(error) if isinstance(error, BotApiError) else None
    record = {"state": state.value, "ended_ms": ended_ms, "result": result, "error": fields, "why": why}
    stored = json.dumps(record, separators=(",", ":"))
    if len(stored) > LONGEST:
        stored = json.dumps({**record, "result": None, "why": "its result was too long to store"})
    return [Delete(SENDING + id_), Set(SENT + id_, stored.encode(), KEPT_S * 1000)]
