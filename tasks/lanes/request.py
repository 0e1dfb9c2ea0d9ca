"""A message of a lane queue on its way from the consumer to the pool and back, as Celery's worker sees it.

Promises that it refuses to run once it was given back, and that an old revoke does not stop a replay. plain.py has the
same for most messages, with less work.
"""

from __future__ import annotations

import contextlib
import os
import signal
from time import monotonic
from typing import Any

from celery.utils.log import get_task_logger
from celery.worker import state
from celery.worker.request import Request

from tasks.lanes import clock, envelope
from tasks.lanes.delivery import delivery_from
from tasks.lanes.discreet import about

logger = get_task_logger(__name__)


class LaneRequest(Request):
    """A request that refuses to run once it was given back."""

    def revoked(self) -> bool:
        """Celery asks this right before it gives a request to the pool."""
        told = self._request_dict.get(envelope.LANE)
        if told is None:
            return bool(super().revoked())
        self._forget_old_revoke(told)
        return bool(super().revoked()) or self._was_given_back()

    def _was_given_back(self) -> bool:
        settler, tag = self._app.lanes.settler, self._message.delivery_tag
        # What a forking pool is given starts in a child, which cannot ask: it is claimed, here or by it (forks.py).
        claims = settler.forks and not settler.room.pool.claims
        runs = settler.claim(tag, starts=False) if claims else settler.holds(tag)
        if not runs:
            logger.debug("lanes: %s was given back before it started", self.id, extra=about(self.id))
            state.task_ready(self)
        return not runs

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """A prefork pool calls this before it ends a child that went over its hard limit, which takes a while.

        The message goes back now, so nothing of the child may go on.
        """
        told = self._request_dict.get(envelope.LANE)
        if not soft and told is not None and self._app.lanes.settler.forks:
            if self.worker_pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.worker_pid, signal.SIGKILL)
            try:
                self.task.on_hard_limit(delivery_from(told, self._message.delivery_tag, self._app.lanes))
            except Exception:
                logger.exception("lanes: %s counts as a death", self.id, extra=about(self.id))
        super().on_timeout(soft, timeout)

    def _forget_old_revoke(self, told: dict[str, Any]) -> None:
        """A revoke that came before the replay was meant for the run before it."""
        revoked_at = state.revoked._data.get(self.id, (None,))[0]
        if told["replayed_s"] is None or revoked_at is None:
            return
        # The time since the replay was taken at the hand-out.
        handed_out_s = told["deadline_s"] - self._app.lanes.settler.lease_s
        if monotonic() - revoked_at > told["replayed_s"] + clock.now_s() - handed_out_s:
            state.revoked.discard(self.id)
