"""Repeats failed calls immediately, where that is safe.

A call is repeated only if it cannot have taken effect or only reads; a server error or a lost response leave open
whether it took effect. The repeats end after a few seconds, because the waiting handler blocks its lane. A 429 is left
to flood control.
"""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from chatlanes import traces
from chatlanes.telegram.errors import BotApiError, NetworkError, ServerError

T = TypeVar("T")

#: A server that restarts is back within a second or two; longer outages are covered by the retry of the update.
PAUSES_S = (0.25, 0.5, 1.0)
#: No repeat begins later than this after the first attempt: a call that took 10 s to fail is likely to fail again.
WITHIN_S = 5.0


#: "… is typing" disappears after 5 s. Frameworks send it repeatedly while a handler runs, so it is not journaled.
TRANSIENT = "sendchataction"


def is_read_only(method: str) -> bool:
    """True if the call has no lasting effect. Method names are case-insensitive; getUpdates confirms updates."""
    name = method.lower()
    return (name.startswith("get") and name != "getupdates") or name == TRANSIENT


def may_repeat(error: BotApiError, *, reads: bool) -> bool:
    """True if a call that failed with this error may be sent again without a second effect."""
    return isinstance(error, NetworkError | ServerError) and (reads or not error.uncertain)


def repeated(send: Callable[[], T], *, reads: bool, wait: Callable[[float], object] = time.sleep) -> T:
    """The result of the first `send` that succeeds. Raises the BotApiError of the last attempt, and whatever `wait`
    raises.
    """
    began_s = time.monotonic()
    for pause_s in PAUSES_S:
        try:
            return send()
        except BotApiError as error:
            if not may_repeat(error, reads=reads) or time.monotonic() - began_s > WITHIN_S:
                raise
            traces.here().event("tried again", error=type(error).__name__)
        wait(pause_s * random.uniform(0.8, 1.2))  # noqa: S311  spreads the repeats of workers that failed together
    return send()
