"""A Celery app with lane queues and an ordinary queue, whose tasks write down when they start and end.

Promises a history in the order in which things happened, over all processes: each line is one write at the end of one
file. `celery -A tests.support.lab_app` makes the app that `LANES_TEST` (JSON, worker.py) describes.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from billiard import pool as billiard_pool
from celery import Celery
from celery.concurrency import prefork
from celery.concurrency.asynpool import AsynPool
from celery.exceptions import Ignore, Reject
from kombu import Queue

from chatlanes import lanes
from chatlanes.lanes.leases import recoverer
from chatlanes.lanes.transport import connection, fetch
from chatlanes.lanes.transport.transport import Poller
from tests.support import history

LANE_QUEUES = tuple(f"orders.{n}" for n in range(4))
ORDINARY_QUEUE = "celery"

ENDLESS_S = 3600

#: As chatlanes reads its setting of that name.
FAST = os.environ.get("FAST", "1") != "0"

#: Set by lab.py: where the history is written, and where the gates are.
HISTORY, GATES = "LANES_HISTORY", "LANES_GATES"

#: A prefork child that ends waits for half a minute until its results are taken (billiard). Here it waits for ever, so
#: that a worker that forgets a child is one that does not end, and not one that is slow.
billiard_pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = 1_000_000
#: Celery looks every 5 s for children that died. Here never: what relies on it does not go on.
AsynPool.timers = property(lambda self: {})


def build(
    url: str,
    *,
    ca: str | None = None,
    options: dict[str, Any] | None = None,
    is_deaf: bool = False,
    sweeps: bool = True,
    ends_with_parent: bool = True,
    **conf: Any,
) -> Celery:
    """The app. `ca` is the certificate that `rediss://` trusts, `options` are transport options.

    A worker that is deaf never looks by itself whether something is ready: it has to be woken. One that does not sweep
    sweeps only when it knows why. Children ask the kernel to be
    ended with their parent, or would, if they did not do so when it is dead.
    """
    if not ends_with_parent:
        prefork.platforms.set_pdeathsig = _outlive
    if not sweeps:
        recoverer.SWEEP_EVERY_S = recoverer.SWEEP_EVERY_OF_LEASE = recoverer.SWEEP_AGAIN_AFTER_S = ENDLESS_S
    if is_deaf:
        _never_look()
    app = Celery("lanes-test", broker=url, set_as_current=False)
    lanes.install(app, fast=FAST)
    app.conf.update(
        task_queues=[
            *(Queue(name, routing_key=name, queue_arguments=lanes.QUEUE_ARGUMENTS) for name in LANE_QUEUES),
            Queue(ORDINARY_QUEUE, routing_key=ORDINARY_QUEUE),
        ],
        task_ignore_result=True,
        accept_content=["json"],
        broker_transport_options=options or {},
        broker_use_ssl=ssl_options(ca) if ca else None,
        # A worker that is stopped while it starts would have to be waited for.
        worker_detect_quorum_queues=False,
        **conf,
    )
    for each in TASKS:
        app.task(name=each.__name__, bind=True, max_retries=None, shared=False)(each)
    return app


def _outlive(_: str) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.005)


def _never_look() -> None:
    """Wait for ever where a worker waits for a second or two, in case that nobody wakes it."""
    stock_get = Poller.get
    fetch.BELL_TIMEOUT_S = fetch.BELL_TIMEOUT_OF_LEASE = connection.OVERDUE_S = ENDLESS_S
    recoverer.REPAIR_EVERY_S = ENDLESS_S
    Poller.get = lambda self, callback, timeout=None: stock_get(self, callback, ENDLESS_S)


def ssl_options(ca: str) -> dict[str, Any]:
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": ca}


def record(what: str, name: str) -> None:
    worker = os.environ.get("LANES_WORKER", "-")
    history.record(os.environ[HISTORY], history.Event(what, name, attempt=1, pid=os.getpid(), worker=worker))


def wait_at(gate: str | None) -> None:
    """Until the test opens the gate, for everybody or for this worker."""
    while gate and not (_is_open(gate) or _is_open(f"{gate} {os.environ['LANES_WORKER']}")):
        time.sleep(0.005)


def _is_open(gate: str) -> bool:
    return Path(os.environ[GATES], gate).exists()


def run(self: Any, gate: str | None = None) -> None:
    """Starts, waits at the gate, and ends."""
    record("start", self.request.id)
    wait_at(gate)
    record("end", self.request.id)


def compute(self: Any, gate: str) -> None:
    """As `run`, but lets nobody else have the thread, and no greenlet run, while it waits."""
    record("start", self.request.id)
    while not _is_open(gate):
        pass
    record("end", self.request.id)


def plain(self: Any, gate: str | None = None) -> None:
    """For the ordinary queue: says what Celery tells a task about itself."""
    record("start", self.request.id)
    wait_at(gate)
    record("end", self.request.id)


def die(self: Any, how: str, times: int) -> None:
    """Ends its process, so many times (a process that dies leaves `start` without `end`)."""
    record("start", self.request.id)
    if self.delivery.died < times:
        _die(how)
    record("end", self.request.id)


def _die(how: str) -> NoReturn:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(3)


def leave(self: Any) -> NoReturn:
    """Raises what is no Exception."""
    record("start", self.request.id)
    sys.exit(3)


def fail(self: Any, times: int, countdown: float) -> None:
    """Retries with Celery's own `self.retry()`, so many times."""
    record("start", self.request.id)
    if self.delivery.failed < times:
        record("retry", self.request.id)
        raise self.retry(countdown=countdown, exc=RuntimeError("not yet"))
    record("end", self.request.id)


def give_up(self: Any, how: str, gate: str) -> None:
    """In its first run, after the gate, it retries or buries itself."""
    record("start", self.request.id)
    if self.delivery.died == 0:
        wait_at(gate)
        problem = {"type": "late", "message": ""}
        outcome = self.delivery.retry(delay_s=0, problem=problem) if how == "retry" else self.delivery.bury(problem)
        record(outcome.name, self.request.id)
        raise Ignore
    record("end", self.request.id)


def fail_plainly(self: Any, times: int) -> None:
    """As `fail`, on an ordinary queue."""
    record("start", self.request.id)
    if self.request.retries < times:
        raise self.retry(countdown=0.01, exc=RuntimeError("not yet"))
    record("end", self.request.id)


def reject(self: Any, requeue: bool) -> None:
    """Celery's Reject."""
    record("start", self.request.id)
    raise Reject("as told", requeue=requeue and self.delivery.died == 0)


def forget(self: Any) -> None:
    """Finds that its lease is over, as after a pause of its process."""
    record("start", self.request.id)
    self.delivery.check()
    record("end", self.request.id)


def close_everything(self: Any) -> None:
    """In its first run it closes every file of its process, as a daemon's helper does, and opens others in their
    place.
    """
    record("start", self.request.id)
    if self.delivery.died == 0:
        os.closerange(3, 4096)
        _kept.extend(os.pipe() for _ in range(50))
    record("end", self.request.id)


_kept: list[tuple[int, int]] = []


def tidy_up(self: Any, gate: str) -> None:
    """Waits to be interrupted, and then takes its time."""
    record("start", self.request.id)
    try:
        wait_at("never")
    finally:
        record("tidy", self.request.id)
        wait_at(gate)
        record("tidied", self.request.id)


def be_deaf(self: Any, gate: str) -> None:
    """As `run`, and nothing interrupts it."""
    record("start", self.request.id)
    while not _is_open(gate):
        with suppress(BaseException):
            wait_at(gate)


TASKS = (
    run,
    compute,
    plain,
    die,
    close_everything,
    leave,
    give_up,
    fail,
    fail_plainly,
    reject,
    forget,
    tidy_up,
    be_deaf,
)


@cache
def _described() -> Celery:
    return build(**json.loads(os.environ["LANES_TEST"]))


def __getattr__(name: str) -> Any:
    if name == "app":
        return _described()
    raise AttributeError(name)
