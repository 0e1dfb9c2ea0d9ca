"""Which failed calls may be sent again at once, without anybody's leave.

Promises that a call is repeated only when nothing can have come of it, or when it only reads: a server error, an answer
that was lost, say nothing about whether the call took effect. Promises to end: whoever waits holds a lane. Does not
repeat a 429; flood control does.
"""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from chatlanes import traces
from chatlanes.telegram.errors import BotApiError, NetworkError, ServerError

T = TypeVar("T")

#: A server that restarts is back within a second or two; a longer outage is the business of the update's own retry.
PAUSES_S = (0.25, 0.5, 1.0)
#: No repeat begins later than this after the first attempt: one that took 10 s to fail will not do better.
WITHIN_S = 5.0


#: "… is typing": gone after 5 s, and sent by frameworks every few seconds beside a handler, at no place of its own.
LEAVES_NOTHING = "sendchataction"


def is_read_only(method: str) -> bool:
    """Whether nothing remains of a call. The Bot API reads names without regard to case; getUpdates forgets."""
    name = method.lower()
    return (name.startswith("get") and name != "getupdates") or name == LEAVES_NOTHING


def may_repeat(error: BotApiError, *, reads: bool) -> bool:
    """Whether a call that failed so may be sent again as if it had never been."""
    return isinstance(error, NetworkError | ServerError) and (reads or not error.uncertain)


def repeated(send: Callable[[], T], *, reads: bool, wait: Callable[[float], object] = time.sleep) -> T:
    """What `send` returns, at its first success. Raises the BotApiError of the last attempt, and what `wait` raises."""
    began_s = time.monotonic()
    for pause_s in PAUSES_S:
        try:
            return send()
        except BotApiError as error:
            if not may_repeat(error, reads=reads) or time.monotonic() - began_s > WITHIN_S:
                raise
            traces.here().event("tried again", error=type(error).__name__)
        wait(pause_s * random.uniform(0.8, 1.2))  # noqa: S311  workers that failed together come back apart
    return send()
