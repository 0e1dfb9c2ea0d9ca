"""Fetch, append, confirm: the poller's main loop, for any source and sink.

Guarantees that a source is asked for its next batch only when the sink holds the last one durably: being asked means
that the last batch may be forgotten. Does not guarantee that a batch comes once: an unconfirmed batch comes again, and
the append drops what it has seen.
"""

from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from chatlanes.lanes.errors import LeaseLost
from chatlanes.poller.polling.leader_election import LeaderElection, SoleLeader
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import Stop, Stopping


class Source(Protocol):
    """Makes a generator of batches, which is asked for the next one only when the last one is durable."""

    def __iter__(self) -> Generator[list[Any], None, None]:
        """Raises Stopping when asked to stop. Closed instead of asked, it must not forget its last batch."""


class Sink(Protocol):
    """Where updates go. `size`: how many are still to be done there."""

    def append(self, updates: list[Any]) -> None:
        """Returns when the updates are durable. Raises Stopping before they are, when it has to be left behind."""

    def size(self) -> int: ...


@dataclass
class Poller:
    """One bot's updates, from one source into one sink. `held` is let go of at the end."""

    source: Source
    sink: Sink
    lead: LeaderElection | SoleLeader
    progress: Progress
    stop: Stop
    held: ExitStack

    #: Updates fetched, and not known to be durable.
    in_hand: int = 0

    def run(self) -> None:
        """Until asked to stop, or until the source ends. Raises what nobody waits out, such as TokenRefusedError."""
        with self.held, suppress(Stopping):
            try:
                self._pass_on()
            finally:
                # Dying before this, the next poller has to wait until the lease is over.
                self.lead.resign()

    def _pass_on(self) -> None:
        while not self.stop.is_requested:
            self.in_hand = 0
            self.lead.take()
            with suppress(LeaseLost), closing(iter(self.source)) as batches:
                for updates in batches:
                    self.in_hand = len(updates)
                    # Dying here, the source still has the batch and gives it again. Losing the lead here, it goes to
                    # the new leader, and the append changes nothing.
                    self.sink.append(updates)
                    # Dying here, or losing the lead, the batch comes again too: append drops what it has seen.
                    self.in_hand = 0
                    # Only now may the source forget the batch: to be asked for the next one tells it so.
                return  # the source has no more
