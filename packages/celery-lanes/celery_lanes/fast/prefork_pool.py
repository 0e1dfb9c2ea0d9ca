"""Replaces Celery's prefork pool with one that makes fewer system calls and loop iterations per job.

A job is written to an idle child in the next iteration of the loop; quick jobs are written ahead to busy children; all
results that a child has written are read at once. Guarantees that billiard receives the start and end of each job in
order, and that everything a child reported before it died is read before it is decided which of its jobs have run.
Celery and billiard still handle time limits, restarts and the shutdown of the pool.
"""

from __future__ import annotations

import heapq
import os
import select
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from billiard import get_start_method
from billiard.common import pickle_loads
from billiard.pool import ACK, READY, TASK
from celery.concurrency import asynpool
from celery.worker import state
from kombu.log import get_logger

from celery_lanes.fast.prefork_child import ANNOUNCED, Child, Frames, SharedMemoryChannel, start_by_mark
from celery_lanes.leases import InFlight
from celery_lanes.protocol import envelope
from celery_lanes.runtime import clock

logger = get_logger(__name__)

#: Bytes of the longest job that fits into one atomic write to a pipe (pipe(7)): no write has to be resumed, and a dead
#: child leaves no partial job behind. Celery writes longer jobs, in several writes.
MAX_WRITE_BYTES = select.PIPE_BUF - 64
#: Jobs written ahead behind the one that runs. A pipe has capacity for this many of the longest.
MAX_AHEAD = 15
#: At shutdown of the pool: how long to wait for the next result of one child before the next child is read.
_SELECT_S = 0.05
_CHUNK = 1 << 16
#: Celery's (failed, result, time) for a task that has ended, and whose result is lost or too late.
_ENDED = (True, (0, None, 0.0))


def apply(worker: Any) -> None:
    """Change the worker's prefork pool before it starts. Does nothing if its children do not inherit memory, if an
    earlier worker of this process had another pool (celery.contrib.testing), or if Celery is configured to send each
    child several jobs however long they take (-Ofast).
    """
    pool, lanes = worker.pool, worker.app.lanes
    strategy = pool.options.get("sched_strategy")
    is_fair = asynpool.SCHED_STRATEGIES.get(strategy, strategy) == asynpool.SCHED_STRATEGY_FAIR
    if pool.Pool is not asynpool.AsynPool or pool.options["threads"] or not is_fair:
        return
    if not pool.forking_enable or get_start_method() != "fork":
        return
    lanes.make_channel = SharedMemoryChannel
    if not isinstance(lanes.in_flight.channel, SharedMemoryChannel):
        return
    pool.Pool = partial(FastPool, lanes.in_flight)
    pool.claims_messages = True
    process_ordinary = worker.process_task

    def process(request: Any) -> None:
        """Celery passes no more jobs to the pool than it has slots; here those of lanes wait in the pool. An ordinary
        task may expire, or be revoked, while it waits.
        """
        (worker._process_task if envelope.LANE in request.request_dict else process_ordinary)(request)

    worker.process_task = process


@dataclass(frozen=True)
class _Stock:
    """AsynPool's own handlers, which it creates as closures."""

    hub: Any
    put: Any
    put_back: Any
    on_poll_start: Any


class FastPool(asynpool.AsynPool):
    """`waiting` are the jobs of lane messages that have not been sent to a child."""

    _quick_put: Any
    _put_back: Any
    on_poll_start: Any
    _stock: _Stock

    def __init__(self, in_flight: InFlight, *args: Any, **kwargs: Any) -> None:
        assert isinstance(in_flight.channel, SharedMemoryChannel)  # noqa: S101
        self.in_flight = in_flight
        self.channel = in_flight.channel
        self.waiting: deque[Any] = deque()
        self.Worker: Any = partial(Child, self.channel)
        self.ResultHandler: Any = partial(FastResultHandler, pool=self)
        in_flight.reports.poll_with(self.read_reports)
        super().__init__(*args, **kwargs)

    def read_reports(self) -> None:
        """Apply what the children reported in shared memory."""
        self.in_flight.reports.read_children()
        for child in self._pool:
            if child.reports.accepted:
                self._result_handler.accept(child)

    # -- children

    def _create_worker_process(self, i: int) -> Any:
        with self.channel.child() as reports:
            self._reports = reports
            return super()._create_worker_process(i)

    def WorkerProcess(self, worker: Any) -> Any:  # noqa: N802
        child = super().WorkerProcess(worker)
        child.reports, child.frames, child.runs, child.given = self._reports, Frames(), None, {}
        return child

    def _worker_active(self, child: Any) -> bool:
        """False: `pool_shrink` or the autoscaler may end the child. Celery knows only jobs whose start it has read."""
        return bool(child.given) or bool(super()._worker_active(child))

    def on_job_ready(self, number: int, part: Any, result: Any, fileno: int) -> None:
        super().on_job_ready(number, part, result, fileno)
        child = self._fileno_to_inq.get(fileno)
        if child is not None:
            child.given.pop(number, None)
            if child.given:
                self._busy_workers.add(fileno)

    def process_flush_queues(self, child: Any) -> None:
        """The child has exited: read everything it sent, before it is decided which of its jobs have run."""
        while self._result_handler.read(child):
            pass
        self._result_handler.accept_all(child)

    def _process_cleanup_queues(self, child: Any) -> None:
        self.channel.forget(child.reports)
        super()._process_cleanup_queues(child)

    # -- time limits

    def _on_soft_timeout(self, number: int, *limits: Any) -> None:
        self._read_end_of(number)
        super()._on_soft_timeout(number, *limits)

    def _on_hard_timeout(self, number: int) -> None:
        self._read_end_of(number)
        super()._on_hard_timeout(number)

    def _read_end_of(self, number: int) -> None:
        """The loop runs timers first. If it was blocked, for example by Redis, the job may have ended in time."""
        job = self._cache.get(number)
        while job is not None and self._result_handler.read(job._write_to):
            pass

    # -- jobs

    def _create_write_handlers(self, hub: Any, **kwargs: Any) -> None:
        super()._create_write_handlers(hub, **kwargs)
        self._stock = _Stock(hub, self._quick_put, self._put_back, self.on_poll_start)
        self._quick_put, self._put_back, self.on_poll_start = self._put, self._return, self._write_waiting

    def _put(self, task: Any) -> None:
        """A new job. Jobs of lane messages wait here, all others in Celery's buffer."""
        _, (number, part, function, args, options) = task
        job = self._cache[number]
        job.tag = _tag_of(args)
        job.is_announced = bool(job.tag is None or job._timeout or job._soft_timeout)
        self._stock.put((TASK, (number, ANNOUNCED if job.is_announced else part, function, args, options)))
        if job.tag is not None:
            self.waiting.append(self.outbound_buffer.pop())

    def _return(self, job: Any) -> None:
        """A job whose child died before the job started: it waits again, as the first."""
        self._stock.put_back(job)
        if job.tag is not None and job in self.outbound_buffer:
            self.outbound_buffer.remove(job)
            self.waiting.appendleft(job)

    def _write_waiting(self) -> None:
        """Called in each iteration of the loop."""
        self.read_reports()
        if self.waiting:
            self._assign()
        some_are_idle = len(self._busy_workers) < len(self._all_inqueues)
        if self._stock.hub.consolidate or (self.outbound_buffer and some_are_idle):
            self._stock.on_poll_start()

    def _assign(self) -> None:
        """Assign a job to each idle child, and quick jobs ahead to busy ones, unless jobs wait in Celery's buffer."""
        batches = [ChildBatch(len(child.given), fileno, child) for fileno, child in self._fileno_to_inq.items()]
        batches = sorted(batch for batch in batches if self._takes_more(batch))[len(self.outbound_buffer) :]
        least_loaded = batches.copy()
        all_are_up = len(self._all_inqueues) == self._processes  # a child that is starting will be idle soon
        while least_loaded and self.waiting:
            batch, job = least_loaded[0], self.waiting[0]
            is_long = job._payload[2] > MAX_WRITE_BYTES
            may_go_ahead = all_are_up and not (job.is_announced or is_long or self.outbound_buffer)
            if batch.load and not (may_go_ahead and batch.load <= MAX_AHEAD):
                break
            self.waiting.popleft()
            start_by_s = clock.now_s() + self.in_flight.capacity.max_wait_s if batch.load else None
            if not self.in_flight.claim(job.tag, starts=False, start_by_s=start_by_s):
                self._drop(job)
            elif is_long:
                heapq.heappop(least_loaded)
                self.outbound_buffer.append(job)
            else:
                batch.add(job, start_by_s)
                heapq.heapreplace(least_loaded, batch)
        for batch in batches:
            self._write(batch)

    def _takes_more(self, batch: ChildBatch) -> bool:
        """False while the child runs a job that Celery wrote, or one that is announced (prefork_child.py), or ends."""
        is_ending = batch.child._controlled_termination
        if is_ending or batch.fileno not in self._all_inqueues or batch.fileno in self._active_writes:
            return False
        return not any(job.is_announced for job in batch.child.given.values()) and (
            bool(batch.load) or batch.fileno not in self._busy_workers
        )

    def _write(self, batch: ChildBatch) -> None:
        for jobs, data in batch.writes():
            try:
                os.write(batch.fileno, data)
            except OSError:  # full, or the child has just died
                self.waiting.extendleft(reversed(jobs))
                continue
            for job in jobs:
                job._scheduled_for = job._write_to = batch.child
                batch.child.given[job._job] = job
                self.write_stats[batch.child.index] += 1
            self._busy_workers.add(batch.fileno)

    def _drop(self, job: Any) -> None:
        """The message was released meanwhile: drop its job, as Celery drops a revoked request."""
        logger.debug("lanes: %s was released before it started", job.correlation_id)
        job.discard()
        state.task_ready(job._callback.__self__)
        if self._putlock is not None:
            self._putlock.release()


class ChildBatch:
    """The jobs that one child is sent in one iteration of the loop, in as few writes as possible.

    `fileno` is the child's pipe, and `load` the number of its jobs. Batches compare by load.
    """

    def __init__(self, load: int, fileno: int, child: Any) -> None:
        self.load = load
        self.fileno = fileno
        self.child = child
        self._added: list[tuple[Any, bytes]] = []

    def __lt__(self, other: ChildBatch) -> bool:
        return self.load < other.load

    def add(self, job: Any, start_by_s: float | None) -> None:
        header, body, _ = job._payload
        mark = b"" if start_by_s is None else start_by_mark(start_by_s)
        self._added.append((job, b"".join((mark, header, body))))
        self.load += 1

    def writes(self) -> Iterator[tuple[list[Any], bytes]]:
        """The jobs and the bytes of each write."""
        jobs: list[Any] = []
        data = b""
        for job, piece in self._added:
            if len(data) + len(piece) > select.PIPE_BUF:
                yield jobs, data
                jobs, data = [], b""
            jobs.append(job)
            data += piece
        if jobs:
            yield jobs, data


def _tag_of(args: Any) -> str | None:
    """`args` are the arguments of Celery's tracer; the third holds the task's headers. None: not a lane message."""
    if len(args) > 2 and isinstance(args[2], dict) and envelope.LANE in args[2]:
        tag: str = args[2]["properties"]["delivery_tag"]
        return tag
    return None


class FastResultHandler(asynpool.ResultHandler):
    """Reads everything that a child has written at once."""

    def __init__(self, *args: Any, pool: Any, **kwargs: Any) -> None:
        self._pool_of = pool
        super().__init__(*args, **kwargs)

    def register_with_event_loop(self, hub: Any) -> None:
        self._hub = hub
        self.handle_event = self._on_readable

    def _on_readable(self, fileno: int) -> None:
        child = self.fileno_to_outq.get(fileno)
        if child is None or self.read(child) == b"":
            self._hub.remove_reader(fileno)

    def _flush_outqueue(self, fileno: int, remove: Any, children: Any, on_state_change: Any) -> None:
        child = children.get(fileno)
        if child is None:  # it has exited, and everything it sent was read
            remove(fileno)
            return
        asynpool._select({fileno}, None, {fileno}, _SELECT_S)
        if self.read(child) == b"":
            remove(fileno)

    def read(self, child: Any) -> bytes | None:
        """Read and handle what the child has written so far. Returns the bytes; None: there were none; empty: the pipe
        is closed.
        """
        try:
            chunk: bytes | None = os.read(child.outq._reader.fileno(), _CHUNK)
        except BlockingIOError:
            chunk = None
        except OSError:  # closed
            return b""
        # Reports are read after the results, so that those made before a result are applied before it is handled.
        self._pool_of.in_flight.reports.read_children()
        for frame in child.frames.cut(chunk or b""):
            self._handle_message(child, pickle_loads(frame))
        self.accept(child)
        return chunk

    def _handle_message(self, child: Any, message: Any) -> None:
        what, about = message
        if what == ACK:
            child.runs = about[0]
        elif what == READY:
            self.accept(child)
            if child.runs == about[0]:
                child.runs = None
        self.on_state_change(message)

    def accept(self, child: Any) -> None:
        """Report to billiard the job that the child runs, once the previous job has ended.

        The child sends the result of a quick job together with those of the next ones. A termination does not wait for
        it: a settled job before the terminated one ends here, without its result.
        """
        while child.reports.accepted:
            if child.runs is not None and not (_is_termination_waiting(child) and self._end_if_settled(child)):
                break
            number, at_s = child.reports.accepted.popleft()
            child.runs = number
            self.on_state_change((ACK, (number, None, at_s, child.pid, child.synqW_fd)))

    def _end_if_settled(self, child: Any) -> bool:
        """Report the end of a job whose message is settled: only its result is missing."""
        job = child.given.get(child.runs)
        if job is None or job.tag is None or self._pool_of.in_flight.holds(job.tag):
            return False
        self.on_state_change((READY, (child.runs, None, _ENDED, child.inqW_fd)))
        return True

    def accept_all(self, child: Any) -> None:
        """The child has died. If it started a job whose message is settled, the job has ended and only its result is
        lost.
        """
        while child.reports.accepted or child.runs is not None:
            self._end_if_settled(child)
            child.runs = None
            self.accept(child)


def _is_termination_waiting(child: Any) -> bool:
    """True if a job is to be terminated that the child has started, and whose start billiard does not know yet."""
    jobs = (child.given.get(number) for number, _ in child.reports.accepted)
    return any(job is not None and job.tag and job._callback.__self__._terminate_on_ack for job in jobs)
