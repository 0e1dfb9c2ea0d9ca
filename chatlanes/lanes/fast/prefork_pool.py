"""The prefork pool of a worker with lanes: Celery's, with fewer system calls and rounds of the loop for each job.

Promises that a job is written to an idle child as soon as the loop goes round, and that what a child said before it
died is heard before it is decided what becomes of its jobs. Which job runs where, time limits, restarts and the end of
the pool stay Celery's and billiard's.
"""

from __future__ import annotations

import heapq
import os
from collections import deque
from functools import partial
from typing import Any

from billiard import get_start_method
from billiard.pool import TASK
from celery.concurrency import asynpool
from celery.worker import state
from kombu.log import get_logger

from chatlanes.lanes.fast.child_batch import LONGEST, MOST_AHEAD, Hand
from chatlanes.lanes.fast.prefork_child import ALOUD, Child, Frames
from chatlanes.lanes.fast.prefork_results import LeanResults
from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.protocol import envelope
from chatlanes.lanes.runtime import clock

logger = get_logger(__name__)


def use_lean_pool(worker: Any, in_flight: InFlight) -> bool:
    """Change a worker whose prefork pool has not started, and say so. Those with other pools stay as they are, and
    those whose children do not inherit memory, or are given several jobs whatever these take (-Ofast).
    """
    pool = worker.pool
    if getattr(pool, "Pool", None) is not asynpool.AsynPool or pool.options["threads"]:
        return False
    strategy = pool.options.get("sched_strategy")
    is_fair = asynpool.SCHED_STRATEGIES.get(strategy, strategy) == asynpool.SCHED_STRATEGY_FAIR
    if not is_fair or not pool.forking_enable or get_start_method() != "fork":
        return False
    pool.Pool = partial(LeanPool, in_flight)
    # Celery holds back what exceeds the slots before it comes to the pool: here it waits in the pool.
    worker.process_task = worker._process_task
    return True


class LeanPool(asynpool.AsynPool):
    """`waiting` are the jobs of lane messages that no child has been given."""

    _quick_put: Any
    _put_back: Any
    on_poll_start: Any

    def __init__(self, in_flight: InFlight, *args: Any, **kwargs: Any) -> None:
        self.in_flight = in_flight
        self.waiting: deque[Any] = deque()
        self.Worker: Any = partial(Child, in_flight.channel)  # type: ignore[arg-type]
        self.ResultHandler: Any = partial(LeanResults, pool=self)
        in_flight.reports.poll_with(self.hear)
        super().__init__(*args, **kwargs)

    def hear(self) -> None:
        """Take in what the children said in memory."""
        self.in_flight.reports.read_children()
        for child in self._pool:
            if child.says.accepted:
                self._result_handler.accept(child)

    # -- children

    def _create_worker_process(self, i: int) -> Any:
        with self.in_flight.channel.child() as says:  # type: ignore[attr-defined]
            self._says = says
            return super()._create_worker_process(i)

    def WorkerProcess(self, worker: Any) -> Any:  # noqa: N802
        worker.others = [inq for inq, *_ in self._queues if inq is not worker.inq]
        child = super().WorkerProcess(worker)
        child.says, child.frames, child.runs, child.given = self._says, Frames(), None, {}
        return child

    def on_job_ready(self, number: int, part: Any, result: Any, fileno: int) -> None:
        super().on_job_ready(number, part, result, fileno)
        child = self._fileno_to_inq.get(fileno)
        if child is not None:
            child.given.pop(number, None)
            if child.given:
                self._busy_workers.add(fileno)

    def process_flush_queues(self, child: Any) -> None:
        """It has ended: to its last word, before anything is done about its jobs."""
        while self._result_handler.read(child):
            pass
        self._result_handler.accept_all(child)

    def _process_cleanup_queues(self, child: Any) -> None:
        self.in_flight.channel.forget(child.says)  # type: ignore[attr-defined]
        super()._process_cleanup_queues(child)

    # -- jobs

    def _create_write_handlers(self, hub: Any, **kwargs: Any) -> None:
        super()._create_write_handlers(hub, **kwargs)
        stock_put, stock_put_back, stock_write = self._quick_put, self._put_back, self.on_poll_start

        def put(task: Any) -> None:
            _, (number, part, function, args, options) = task
            job = self._cache[number]
            job.tag = _tag_of(args)
            job.is_loud = bool(job.tag is None or job._timeout or job._soft_timeout)
            stock_put((TASK, (number, ALOUD if job.is_loud else part, function, args, options)))
            if job.tag is not None:
                self.waiting.append(self.outbound_buffer.pop())

        def put_back(job: Any) -> None:
            stock_put_back(job)
            if job.tag is not None and job in self.outbound_buffer:
                self.outbound_buffer.remove(job)
                self.waiting.appendleft(job)

        def on_poll_start() -> None:
            self.hear()
            if self.waiting:
                self._give()
            some_are_idle = len(self._busy_workers) < len(self._all_inqueues)
            if hub.consolidate or (self.outbound_buffer and some_are_idle):
                stock_write()

        self._quick_put, self._put_back, self.on_poll_start = put, put_back, on_poll_start

    def _give(self) -> None:
        """A job to each idle child, and to busy ones what they will soon have time for, unless somebody else waits."""
        hands = [Hand(len(child.given), fileno, child) for fileno, child in self._fileno_to_inq.items()]
        hands = sorted(hand for hand in hands if self._takes_more(hand))[len(self.outbound_buffer) :]
        heap = hands.copy()
        all_are_here = len(self._all_inqueues) == self._processes  # one that has just begun will be idle
        while heap and self.waiting:
            hand, job = heap[0], self.waiting[0]
            is_long = job._payload[2] > LONGEST
            goes_ahead = all_are_here and not (job.is_loud or is_long or self.outbound_buffer)
            if hand.load and not (goes_ahead and hand.load <= MOST_AHEAD):
                break
            self.waiting.popleft()
            start_by_s = clock.now_s() + self.in_flight.capacity.patience_s if hand.load else None
            if not self.in_flight.claim(job.tag, starts=False, start_by_s=start_by_s):
                self._drop(job)
            elif is_long:
                heapq.heappop(heap)
                self.outbound_buffer.append(job)
            else:
                hand.take(job, start_by_s)
                heapq.heapreplace(heap, hand)
        for hand in hands:
            self._write(hand)

    def _takes_more(self, hand: Hand) -> bool:
        """Not while it runs what Celery wrote to it, or what is to be heard of at once."""
        if hand.fileno not in self._all_inqueues or hand.fileno in self._active_writes:
            return False
        return not any(job.is_loud for job in hand.child.given.values()) and (
            bool(hand.load) or hand.fileno not in self._busy_workers
        )

    def _write(self, hand: Hand) -> None:
        for jobs, letter in hand.letters():
            try:
                os.write(hand.fileno, letter)
            except OSError:  # full, or it has just died
                self.waiting.extendleft(reversed(jobs))
                continue
            for job in jobs:
                job._scheduled_for = job._write_to = hand.child
                hand.child.given[job._job] = job
                self.write_stats[hand.child.index] += 1
            self._busy_workers.add(hand.fileno)

    def _drop(self, job: Any) -> None:
        """It was given back meanwhile: as Celery drops a request that was revoked."""
        logger.debug("lanes: %s was given back before it started", job.correlation_id)
        job.discard()
        state.task_ready(job._callback.__self__)
        if self._putlock is not None:
            self._putlock.release()


def _tag_of(args: Any) -> str | None:
    """The arguments of Celery's tracer: the third one are a task's headers. None: of no lane."""
    if len(args) > 2 and isinstance(args[2], dict) and envelope.LANE in args[2]:
        tag: str = args[2]["properties"]["delivery_tag"]
        return tag
    return None
