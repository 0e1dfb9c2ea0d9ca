"""Calls that a task makes after the handler that started it has ended.

Guarantees that such a call is made as a call outside of any update: directly, in no journal, at no gate, at most once.
It is refused with LeaseLost when its run has failed, because the next run starts the task again, and when its run has
lost the lease. Does not outlive its process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chatlanes.bot.calls.journal import CallJournal
from chatlanes.bot.calls.lifecycle import Lifecycle, Phase
from chatlanes.lanes.errors import LeaseLost
from chatlanes.telegram.client import BotApi


class LateCalls:
    """Of one run."""

    def __init__(self, api: BotApi, life: Lifecycle, journal: CallJournal | None) -> None:
        self._api, self._life, self._journal = api, life, journal

    def call(self, method: str, /, *, uncertain: object = None, **params: Any) -> Any:
        """As BotApi.call. Raises LeaseLost besides."""
        self._check(method)
        return self._api.call(method, **params)

    def download(self, file_path: str, to: Path | None = None) -> bytes:
        """As BotApi.download. Raises LeaseLost besides."""
        self._check("download")
        return self._api.download(file_path, to)

    def _check(self, method: str) -> None:
        if self._journal is None:
            return
        if self._life.phase is Phase.FAILED:
            raise LeaseLost(f"this run of {self._journal.id} has failed; {method} was not called")
        if self._life.phase is Phase.ENDING:  # the update is not settled, so the fence still tells
            self._journal.ensure(method)
