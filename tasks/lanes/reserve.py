"""How many messages a worker may hold beyond its free slots.

Promises that a reserved message is expected to start within EXPECTED_WAIT_S: quick handlers get a reserve that hides
the round trip to Redis, slow ones get none, so that no message waits behind a slow one while another worker is idle.
What waits longer than GIVE_BACK_AFTER_S all the same is given back by the lease keeper.
"""

from __future__ import annotations

#: About a hundred round trips to Redis; a human does not notice it.
EXPECTED_WAIT_S = 0.02
#: Also the longest that a wrong expectation can hold a lane.
GIVE_BACK_AFTER_S = 0.05
#: Weight of the newest run in the moving average: a change shows after some ten runs.
_NEWEST = 0.1


class Reserve:
    """Learns from how long messages occupy a slot, seconds."""

    def __init__(self) -> None:
        self._run_s = GIVE_BACK_AFTER_S  # slow until the first runs say otherwise

    def ran(self, run_s: float) -> None:
        self._run_s += _NEWEST * (run_s - self._run_s)

    def was_given_back(self, slots: int) -> None:
        """No slot became free for as long as it waited: nothing more, until the next runs say otherwise."""
        self._run_s = max(self._run_s, 2 * slots * EXPECTED_WAIT_S)

    def size(self, slots: int, most: int) -> int:
        """Messages beyond the free slots, at most `most`."""
        return min(most, int(slots * EXPECTED_WAIT_S / max(self._run_s, 1e-6)))
