"""The progress of each update: waiting, running, done, delayed, buried."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

#: So many are remembered, of those that were streamed too.
MOST = 20_000


@dataclass
class UpdateProgress:
    """Times are Unix seconds."""

    update_id: int
    telegram_s: float
    #: 0: one of the stream, which belongs to no chat of the page.
    chat_id: int = 0
    state: str = "waiting"
    #: The one that runs, or the last one.
    attempt: int = 0
    #: Of its handler, that were heard of.
    starts: int = 0
    appended_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    took_s: float | None = None
    #: When the run that goes on now started.
    run_s: float | None = None
    worker: str | None = None
    error: str | None = None
    traceback: str | None = None

    @property
    def is_over(self) -> bool:
        """Unless somebody replays it."""
        return self.state in ("done", "buried")

    @property
    def waited_s(self) -> float | None:
        """Until its first handler started."""
        return None if self.started_s is None else round(max(0.0, self.started_s - self.telegram_s), 3)


class ProgressTable(OrderedDict[int, UpdateProgress]):
    """By update id."""

    def add(self, progress: UpdateProgress) -> UpdateProgress:
        self[progress.update_id] = progress
        while len(self) > MOST:
            self.popitem(last=False)
        return progress
