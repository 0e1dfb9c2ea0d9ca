"""How many messages a worker may hold beyond its free slots, and for how long.

Promises that a reserved message is expected to start within EXPECTED_WAIT_S: quick handlers get a reserve that hides
the round trip to Redis, slow ones get none, so that no message waits behind a slow one while another worker is idle.
In a backlog, where all messages have waited for longer than that and no worker is idle, it is as long as they have
waited, up to BACKLOG_WAIT_S: turns are fewer then, and cheaper for each message. What waits for longer than
`patience_s` all the same is given back by the lease keeper.
"""

from __future__ import annotations

from collections.abc import Iterable

#: About a hundred round trips to Redis; a human does not notice it.
EXPECTED_WAIT_S = 0.02
#: The most in a backlog. Half a dozen turns a second and worker cost each message next to nothing.
BACKLOG_WAIT_S = 0.2
#: In terms of the expected wait. Also the longest that a wrong expectation can hold a lane.
PATIENCE = 2.5
#: Weight of the newest run in the moving average: a change shows after some ten runs.
_NEWEST = 0.1


class Reserve:
    """Learns from how long messages occupy a slot, and how long they have waited, seconds."""

    def __init__(self) -> None:
        self._run_s = EXPECTED_WAIT_S * PATIENCE  # slow until the first runs say otherwise
        self._wait_s = EXPECTED_WAIT_S

    @property
    def patience_s(self) -> float:
        return self._wait_s * PATIENCE

    @property
    def is_backlog(self) -> bool:
        return self._wait_s >= BACKLOG_WAIT_S

    def ran(self, run_s: float) -> None:
        self._run_s += _NEWEST * (run_s - self._run_s)

    def handed_out(self, waited_s: Iterable[float], *, more: bool) -> None:
        """How long each message of a turn had waited for it. `more`: others are ready, which no worker had room for."""
        shortest_s = min(waited_s, default=0.0) if more else 0.0
        self._wait_s = min(max(shortest_s, EXPECTED_WAIT_S), BACKLOG_WAIT_S)

    def was_given_back(self, slots: int) -> None:
        """No slot became free for as long as it waited: nothing more, until the next runs say otherwise."""
        self._run_s = max(self._run_s, 2 * slots * self._wait_s)

    def size(self, slots: int, most: int) -> int:
        """Messages beyond the free slots, at most `most`."""
        return min(most, int(slots * self._wait_s / max(self._run_s, 1e-6)))

    def suffices(self, slots: int, size: int, waiting: int) -> bool:
        """Whether the next turn can wait: of `size` more are `waiting` here than start within EXPECTED_WAIT_S.

        Only in a backlog: elsewhere the lanes of what is done would be held up.
        """
        return self.is_backlog and waiting > min(size / 2, slots * EXPECTED_WAIT_S / max(self._run_s, 1e-6))
