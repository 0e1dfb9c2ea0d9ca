"""The wait before the next poll, so that each poll returns more updates. Pure.

The formula is that of grammY runner's `speedTrafficBalance` and `maxDelayMilliseconds` (src/source.ts, 2.0.3).
Guarantees no wait with a balance of 0, none after a full batch, and never more than the longest one.
"""

from dataclasses import dataclass, replace
from math import tanh

#: The number of past batches that count.
BATCHES = 16
#: Initial value for batches before the first one: full and immediate, so that the wait grows from zero.
FULL_AT_ONCE = (100, 0.001)
#: Updates per batch that a balance of 1 aims at.
WANTED = 100


@dataclass(frozen=True)
class Pace:
    """`balance`: 0 polls at once, 1 polls as seldom as `longest_s` allows. `recent`: (updates, seconds) of batches."""

    balance: float
    longest_s: float
    recent: tuple[tuple[int, float], ...] = (FULL_AT_ONCE,) * BATCHES
    #: The last batch had as many updates as requested, so more are waiting.
    is_full: bool = True

    def after(self, updates: int, seconds: float, *, full: bool) -> "Pace":
        """The pace after a batch with this number of `updates`; `seconds` since the batch before it, waits included."""
        return replace(self, recent=(*self.recent[1:], (updates, seconds)), is_full=full)

    @property
    def wait_s(self) -> float:
        if self.is_full or not self.balance or not self.longest_s:
            return 0.0
        updates = sum(count for count, _ in self.recent)
        seconds = sum(spent for _, spent in self.recent)
        # as in grammY: a limit below a millisecond counts as a millisecond
        wanted_each_s = WANTED * self.balance / max(self.longest_s, 0.001)
        return self.longest_s * tanh(wanted_each_s * seconds / (updates or 1))
