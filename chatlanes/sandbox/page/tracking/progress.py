"""The progress of each update: waiting, running, done, delayed, buried."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

#: The updates that are remembered, including streamed ones.
MOST = 20_000


@dataclass
class UpdateProgress:
    """Times are Unix seconds."""

    update_id: int
    telegram_s: float
    #: 0: it belongs to no chat of the page, such as a streamed one.
    chat_id: int = 0
    state: str = "waiting"
    #: The current attempt, or the last one.
    attempt: int = 0
    #: Reported starts of its handler.
    starts: int = 0
    appended_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    took_s: float | None = None
    #: The start of the current run.
    run_s: float | None = None
    worker: str | None = None
    error: str | None = None
    traceback: str | None = None

    @property
    def is_over(self) -> bool:
        """True unless it is replayed."""
        return self.state in ("done", "buried")

    @property
    def waited_s(self) -> float | None:
        """The time until its handler started first."""
        return None if self.started_s is None else round(max(0.0, self.started_s - self.telegram_s), 3)


class ProgressTable(OrderedDict[int, UpdateProgress]):
    """By update id."""

    def add(self, progress: UpdateProgress) -> UpdateProgress:
        self[progress.update_id] = progress
        while len(self) > MOST:
            self.popitem(last=False)
        return progress
