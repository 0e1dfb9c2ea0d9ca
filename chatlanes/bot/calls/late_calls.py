"""Calls made by a task after the handler that started it has ended.

Such a call belongs to no update: it is sent directly, at most once, without journal and flood control. It is refused
with LeaseLost if its run has failed, because the next run starts the task again, or if its run has lost the lease. It
is lost if its process ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chatlanes.bot.calls.journal import CallJournal
from chatlanes.bot.calls.lifecycle import Lifecycle, Phase
from chatlanes.lanes.errors import LeaseLost
from chatlanes.telegram.client import BotApi


class LateCalls:
    """The late calls of one run."""

    def __init__(self, api: BotApi, life: Lifecycle, journal: CallJournal | None) -> None:
        self._api, self._life, self._journal = api, life, journal

    def call(self, method: str, /, *, uncertain: object = None, **params: Any) -> Any:
        """Like BotApi.call. Also raises LeaseLost."""
        self._check(method)
        return self._api.call(method, **params)

    def download(self, file_path: str, to: Path | None = None) -> bytes:
        """Like BotApi.download. Also raises LeaseLost."""
        self._check("download")
        return self._api.download(file_path, to)

    def _check(self, method: str) -> None:
        if self._journal is None:
            return
        if self._life.phase is Phase.FAILED:
            raise LeaseLost(f"this run of {self._journal.id} has failed; {method} was not called")
        if self._life.phase is Phase.ENDING:  # the update is not settled yet, so the lease can be checked
            self._journal.ensure(method)
