"""Fetch, append, confirm: the main loop of the poller, for any source and sink.

Guarantees that a source is asked for its next batch only when the last one is durable in the sink; the request
tells the source that it may forget the last batch. Does not guarantee that a batch arrives once: an unconfirmed batch
arrives again, and the append drops updates that it has seen.
"""

from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from celery_lanes.errors import LeaseLost
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import Stop, Stopping

#: After the stop request the poller waits this long for the append in flight, and for the answer to the last confirm.
APPEND_GRACE_S, CONFIRM_GRACE_S = 0.9, 1.1


class Source(Protocol):
    """Iterating it gives a generator of batches, which is asked for the next batch when the last one is durable."""

    def __iter__(self) -> Generator[list[Any], None, None]:
        """Raises Stopping after a stop request, and LeaseLost if another poller leads: iterating again waits for the
        lead. A generator that is closed must not forget its last batch.
        """


class Sink(Protocol):
    """The destination of updates, which limits how many are fetched."""

    def append(self, updates: list[Any]) -> None:
        """Returns when the updates are durable. Raises Stopping if they are not in time after a stop request."""

    def size(self) -> int:
        """How many are pending there."""

    def refresh(self) -> None:
        """Reads that number again, because other pollers may have changed it. Raises Stopping."""

    def room(self) -> int:
        """Waits until more updates fit; returns how many. Raises Stopping."""


@dataclass
class Poller:
    """Moves the updates of one bot from a source into a sink. `resources` are closed at the end."""

    source: Source
    sink: Sink
    progress: Progress
    stop: Stop
    resources: ExitStack

    #: Updates that were fetched and are not known to be durable.
    in_flight: int = 0

    def run(self) -> None:
        """Runs until a stop request or the end of the source. Raises errors that are not retried."""
        with self.resources, suppress(Stopping):
            self._move_batches()

    def _move_batches(self) -> None:
        while not self.stop.is_requested:
            self.in_flight = 0
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
