"""Fetch, append, confirm: the main loop of the poller, for any source and sink.

Guarantees that a source is asked for its next batch only when the last one is durable in the sink; the request
tells the source that it may forget the last batch. Does not guarantee that a batch arrives once: an unconfirmed batch
arrives again, and the append drops updates that it has seen.
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
    """Iterating it gives a generator of batches, which is asked for the next batch when the last one is durable."""

    def __iter__(self) -> Generator[list[Any], None, None]:
        """Raises Stopping after a stop request. A generator that is closed must not forget its last batch."""


class Sink(Protocol):
    """The destination of updates. `size`: how many are pending there."""

    def append(self, updates: list[Any]) -> None:
        """Returns when the updates are durable. Raises Stopping if they are not in time after a stop request."""

    def size(self) -> int: ...


@dataclass
class Poller:
    """Moves the updates of one bot from a source into a sink. `resources` are closed at the end."""

    source: Source
    sink: Sink
    lead: LeaderElection | SoleLeader
    progress: Progress
    stop: Stop
    resources: ExitStack

    #: Updates that were fetched and are not known to be durable.
    in_flight: int = 0

    def run(self) -> None:
        """Runs until a stop request or the end of the source. Raises errors that are not retried."""
        with self.resources, suppress(Stopping):
            try:
                self._move_batches()
            finally:
                # If the process dies before this, the next poller must wait until the lease expires.
                self.lead.resign()

    def _move_batches(self) -> None:
        while not self.stop.is_requested:
            self.in_flight = 0
            self.lead.take()
            with suppress(LeaseLost), closing(iter(self.source)) as batches:
                for updates in batches:
                    self.in_flight = len(updates)
                    # If the process dies here, the source still has the batch and sends it again. If the lead is lost
                    # here, the new leader gets the batch, and this append changes nothing.
                    self.sink.append(updates)
                    # After a crash or a lost lead here the batch arrives again too; append drops seen updates.
                    self.in_flight = 0
                    # Only now may the source forget the batch: the request for the next one tells it.
                return  # the source has ended
