"""The prefork pool of a worker with lanes: Celery's, with fewer system calls and rounds of the loop for each job.

Promises that a job is written to an idle child as soon as the loop goes round, and that what a child said before it
died is heard before it is decided what becomes of its jobs. Which job runs where, time limits, restarts and the end of
the pool stay Celery's and billiard's.
"""

from __future__ import annotations

import os
import select
from functools import partial
from typing import Any

from billiard import get_start_method
from billiard.common import pickle_loads
from billiard.pool import ACK, READY, TASK
from celery.concurrency import asynpool

from tasks.lanes import envelope
from tasks.lanes.child import ALOUD, Child, Frames
from tasks.lanes.settler import Settler

#: At the end of the pool: how long to wait for a child's next result before the next child is looked at.
_LOOK_S = 0.05
_CHUNK = 1 << 16


def use_lean_pool(pool: Any, settler: Settler) -> None:
    """Change a `celery.concurrency.prefork.TaskPool` that has not started; other pools stay as they are."""
    if getattr(pool, "Pool", None) is asynpool.AsynPool and pool.forking_enable and get_start_method() == "fork":
        pool.Pool = partial(LeanPool, settler)


class LeanResults(asynpool.ResultHandler):
    """Reads all that a child wrote at once."""

    def __init__(self, *args: Any, pool: Any, **kwargs: Any) -> None:
        self._pool_of = pool
        super().__init__(*args, **kwargs)

    def register_with_event_loop(self, hub: Any) -> None:
        self._hub = hub
        self.handle_event = self._on_readable

    def _on_readable(self, fileno: int) -> None:
        child = self.fileno_to_outq.get(fileno)
        if child is None or not self.read(child):
            self._hub.remove_reader(fileno)

    def _flush_outqueue(self, fileno: int, remove: Any, children: Any, on_state_change: Any) -> None:
        child = children.get(fileno)
        if child is None:  # it has ended and was read to its end
            remove(fileno)
            return
        try:
            select.select([fileno], [], [], _LOOK_S)
        except OSError:
            remove(fileno)
            return
        if not self.read(child):
            remove(fileno)

    def read(self, child: Any) -> bool:
        """What it has written so far. False: there will be no more."""
        try:
            chunk = os.read(child.outq._reader.fileno(), _CHUNK)
        except BlockingIOError:
            chunk = None
        except OSError:
            return False
        # After the results: what it said in memory before it wrote one of them is there now.
        self._pool_of.settler.read_children()
        for frame in child.frames.cut(chunk or b""):
            self._hear(child, pickle_loads(frame))
        self.accept(child)
        return chunk != b""

    def _hear(self, child: Any, message: Any) -> None:
        what, about = message
        if what == ACK:
            child.runs = about[0]
        elif what == READY:
            self.accept(child)
            if child.runs == about[0]:
                child.runs = None
        self.on_state_change(message)

    def accept(self, child: Any) -> None:
        """Tell of the job that it runs. billiard wants to hear of the last one's end before of the next one's begin."""
        while child.says.accepted and child.runs is None:
            child.runs, at_s = child.says.accepted.popleft()
            self.on_state_change((ACK, (child.runs, None, at_s, child.pid, child.synqW_fd)))


class LeanPool(asynpool.AsynPool):
    _quick_put: Any
    on_poll_start: Any

    def __init__(self, settler: Settler, *args: Any, **kwargs: Any) -> None:
        self.settler = settler
        self.Worker: Any = partial(Child, settler.handoff)
        self.ResultHandler: Any = partial(LeanResults, pool=self)
        settler.hear = self.hear
        super().__init__(*args, **kwargs)

    def hear(self) -> None:
        """Take in what the children said in memory."""
        self.settler.read_children()
        for child in self._pool:
            if child.says.accepted:
                self._result_handler.accept(child)

    # -- children

    def _create_worker_process(self, i: int) -> Any:
        with self.settler.handoff.child() as says:
            self._says = says
            return super()._create_worker_process(i)

    def WorkerProcess(self, worker: Any) -> Any:  # noqa: N802
        child = super().WorkerProcess(worker)
        child.says, child.frames, child.runs = self._says, Frames(), None
        return child

    def process_flush_queues(self, child: Any) -> None:
        """It has ended: to its last word, before anything is done about its jobs."""
        while not child.outq._reader.closed and select.select([child.outq._reader], [], [], 0)[0]:
            if not self._result_handler.read(child):
                break
        self.settler.read_children()
        self._result_handler.accept(child)

    def _process_cleanup_queues(self, child: Any) -> None:
        self.settler.handoff.forget(child.says)
        super()._process_cleanup_queues(child)

    # -- jobs

    def _create_write_handlers(self, hub: Any, **kwargs: Any) -> None:
        super()._create_write_handlers(hub, **kwargs)
        put, write_when_writable = self._quick_put, self.on_poll_start

        def put_with_manner(task: Any) -> None:
            _, (job, part, function, args, options) = task
            applied = self._cache[job]
            if applied._timeout or applied._soft_timeout or not _is_of_lane(args):
                part = ALOUD
            put((TASK, (job, part, function, args, options)))

        def on_poll_start() -> None:
            self.hear()
            self._write_to_idle()
            some_are_idle = len(self._busy_workers) < len(self._all_inqueues) or not self._is_fair()
            if hub.consolidate or (self.outbound_buffer and some_are_idle):
                write_when_writable()

        self._quick_put, self.on_poll_start = put_with_manner, on_poll_start

    def _write_to_idle(self) -> None:
        """What fits into a pipe in one piece, or not at all, needs nobody to watch how far it has come."""
        if not self.outbound_buffer or not self._is_fair():
            return
        for fileno in self._all_inqueues - self._active_writes - self._busy_workers:
            if not self.outbound_buffer:
                return
            job = self.outbound_buffer[0]
            header, body, length = job._payload
            child = self._fileno_to_inq.get(fileno)
            if job._accepted or child is None or len(header) + length > select.PIPE_BUF:
                return
            try:
                os.write(fileno, b"".join((header, body)))
            except OSError:  # full, or closed: Celery's way finds out
                return
            self.outbound_buffer.popleft()
            job._scheduled_for = job._write_to = child
            self._busy_workers.add(fileno)
            self.write_stats[child.index] += 1

    def _is_fair(self) -> bool:
        """Celery gives a child one job at a time, unless it is started with -Ofast."""
        return bool(self.sched_strategy == asynpool.SCHED_STRATEGY_FAIR)


def _is_of_lane(args: Any) -> bool:
    """The arguments of Celery's tracer: the third one are a task's headers."""
    return len(args) > 2 and isinstance(args[2], dict) and envelope.LANE in args[2]
