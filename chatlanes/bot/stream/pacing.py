"""When a stream makes its next request: the first text, later edits, the typing action. Pure, except for a Redis key.

Guarantees that a stream makes at most one request per interval in its chat. The intermediate edits of all streams in a
chat, on all workers, share the interval. Times are those of time.monotonic().
"""

from __future__ import annotations

from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand
from chatlanes.telegram.flood.keys import EDITED, LONGEST_SCOPE
from chatlanes.telegram.flood.rates import is_group

#: The first text is shown after this time even if it is shorter than STREAM_FIRST.
FIRST_WITHIN_S = 0.5
#: The time between two edits in a private chat, and in a group or channel (Telegram allows 20 messages a minute there).
PRIVATE_S = 1.0
GROUP_S = 3.0
#: After the interval of a chat has ended, the streams that waited for it ask before the one that had it.
TURN_S = 0.001
#: Telegram shows the typing action for 5 s.
TYPING_S = 4.5
#: The waits after a network or server error.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


class StreamPace:
    """The times of one stream."""

    def __init__(self, chat: int | str | None, first_chars: int) -> None:
        self.interval_s = GROUP_S if is_group(chat) else PRIVATE_S
        self.first_chars = first_chars
        self.is_shown = False
        self._next_s = 0.0  # no text before
        self._typing_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def text_due_s(self, length: int, began_s: float | None) -> float | None:
        """When the unsent text is due; None: not before more text is written. `began_s`: of the first text."""
        if began_s is None:
            return None
        if self.is_shown or length >= self.first_chars:
            return self._next_s
        return max(self._next_s, began_s + FIRST_WITHIN_S)

    def typing_due_s(self) -> float | None:
        return None if self.is_shown else self._typing_s

    def sent(self, now_s: float) -> None:
        self.is_shown = True
        self._next_s = now_s + self.interval_s
        self._pause_s = FIRST_PAUSE_S

    def typed(self, now_s: float) -> None:
        self._typing_s = now_s + TYPING_S

    def held(self, now_s: float, wait_s: float, *, is_in_turn: bool) -> None:
        """Flood control holds the request: it asks again after the wait, but not more often than it may send. In turn
        with other streams it asks as soon as the interval is free; otherwise the same stream would always get it.
        """
        self._next_s = now_s + (wait_s + TURN_S if is_in_turn else max(wait_s, self.interval_s))

    def failed(self, now_s: float) -> None:
        """A network or server error."""
        self._next_s = now_s + max(self._pause_s, self.interval_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def wait_s(self, now_s: float) -> float:
        """Until the final text may be sent. Flood control decides about the rest."""
        return max(0.0, min(self._next_s - now_s, self.interval_s)) if self.is_shown else 0.0


def shared_interval(bot_id: str, chat: int | str, interval_s: float) -> list[PipelinedCommand]:
    """Commands that take the interval of the chat for one edit, or return how long it is taken by another stream."""
    key = _key(bot_id, chat)
    taken = PipelinedCommand(None, ["SET", key, 1, "NX", "PX", round(interval_s * 1000)])
    return [PipelinedCommand(None, ["PTTL", key]), taken]


def ended_interval(bot_id: str, chat: int | str) -> PipelinedCommand:
    """The command that ends the interval of a chat early."""
    return PipelinedCommand(None, ["DEL", _key(bot_id, chat)])


def _key(bot_id: str, chat: int | str) -> str:
    return f"{EDITED}{bot_id}:{str(chat)[:LONGEST_SCOPE].lower()}"
