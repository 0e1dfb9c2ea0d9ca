"""A Celery app with lane queues and an ordinary queue. Its tasks record their start and end in a history.

The history has the order of events over all processes: each line is appended to one file with a single write.
`celery -A tests.support.lab_app` builds the app from the arguments in `LANES_TEST` (JSON, worker.py).
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
from types import SimpleNamespace
from typing import Any, NoReturn

from billiard import pool as billiard_pool
from celery import Celery, Task, chord, group
from celery.concurrency import prefork
from celery.concurrency.asynpool import AsynPool
from celery.exceptions import Ignore, Reject
from celery.worker.consumer import Consumer
from kombu import Queue

import celery_lanes as lanes
from celery_lanes.leases import background
from celery_lanes.protocol import Store, connect
from celery_lanes.transport import fetch
from celery_lanes.transport.transport import LanesPoller
from tests.support import history

LANE_QUEUES = tuple(f"orders.{n}" for n in range(4))
ORDINARY_QUEUE = "celery"

ENDLESS_S = 3600

#: The process that forks the children.
_MAIN = os.getpid()

#: `FAST=0 pytest` runs without lanes/fast.
FAST = os.environ.get("FAST", "1") != "0"

#: Environment variables that lab.py sets: the file of the history and the folder of the gates.
HISTORY, GATES = "LANES_HISTORY", "LANES_GATES"

#: A prefork child that exits waits up to 30 s until its results are read (billiard). Here it waits without limit, so
#: that a worker that does not read them never exits, instead of exiting late.
billiard_pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = 1_000_000
#: Celery checks for dead children every 5 s. Here it never does, so that code that depends on the check fails.
AsynPool.timers = property(lambda self: {})


def build(
    url: str,
    *,
    ca: str | None = None,
    options: dict[str, Any] | None = None,
    only_wakeups: bool = False,
    sweeps: bool = True,
    ends_with_parent: bool = True,
    hangs_in: str = "",
    weights: dict[str, int] | None = None,
    **conf: Any,
) -> Celery:
    """Build the app. `ca` is the CA certificate for `rediss://`; `options` are the transport options.

    With `only_wakeups`, a worker does not poll for ready messages: it depends on wake-ups. Without `sweeps`, it does
    not sweep periodically, only for a reason. Children ask the kernel to be killed when their parent dies. Without
    `ends_with_parent`, they are as late as a child whose parent dies before it can ask. `hangs_in` is a method of
    the consumer that never returns, which Celery calls in its handler of SIGQUIT. `weights`: of further lane queues.
    """
    if hangs_in:
        setattr(Consumer, hangs_in, lambda _: os.read(os.pipe()[0], 1))
    if not ends_with_parent:
        prefork.platforms.set_pdeathsig = _wait_for_parent_to_die
    if not sweeps:
        background.SWEEP_EVERY_S = background.SWEEP_EVERY_OF_LEASE = background.SWEEP_AGAIN_AFTER_S = ENDLESS_S
    if only_wakeups:
        _disable_polling()
    app = Celery("lanes-test", broker=url, set_as_current=False)
    lanes.install(app, fast=FAST)
    app.conf.update(
        task_queues=[
            *(Queue(name, routing_key=name, queue_arguments=lanes.QUEUE_ARGUMENTS) for name in LANE_QUEUES),
            *(
                Queue(name, routing_key=name, queue_arguments=lanes.queue_arguments(weight=weight))
                for name, weight in (weights or {}).items()
            ),
            Queue(ORDINARY_QUEUE, routing_key=ORDINARY_QUEUE),
        ],
        task_ignore_result=True,
        accept_content=["json"],
        broker_transport_options=options or {},
        broker_use_ssl=ssl_options(ca) if ca else None,
        # The check would delay the end of a worker that is stopped while it starts.
        worker_detect_quorum_queues=False,
        **conf,
    )
    for each in TASKS:
        options = {"max_retries": None, **OPTIONS.get(each.__name__, {})}
        app.task(name=each.__name__, bind=True, shared=False, **options)(each)
    return app


def _wait_for_parent_to_die(_: str) -> None:
    while os.getppid() == _MAIN:  # read before the fork: the parent may be dead by now
        time.sleep(0.005)


def _disable_polling() -> None:
    """Replace the timeouts after which a worker checks for ready messages without a wake-up by an hour."""
    stock_get = LanesPoller.get
    fetch.WAIT_S = fetch.WAIT_OF_LEASE = fetch.OVERDUE_S = ENDLESS_S
    background.REPAIR_EVERY_S = ENDLESS_S
    LanesPoller.get = lambda self, callback, timeout=None: stock_get(self, callback, ENDLESS_S)


def ssl_options(ca: str) -> dict[str, Any]:
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": ca}


def record(what: str, name: str) -> None:
    worker = os.environ.get("LANES_WORKER", "-")
    history.record(os.environ[HISTORY], history.Event(what, name, attempt=1, pid=os.getpid(), worker=worker))


def wait_at(gate: str | None) -> None:
    """Wait until the test opens the gate, for all workers or for this one."""
    while gate and not (_is_open(gate) or _is_open(f"{gate} {os.environ['LANES_WORKER']}")):
        time.sleep(0.005)


def _is_open(gate: str) -> bool:
    return Path(os.environ[GATES], gate).exists()


def run(self: Any, gate: str | None = None) -> None:
    """Start, wait at the gate, end."""
    record("start", self.request.id)
    wait_at(gate)
    record("end", self.request.id)


def run_and_linger(
    self: Any, gate: str | None = None, fails: bool = False, lingers: str | None = None, hook_fails: bool = False
) -> None:
    """As `run`, or fail. Its hook waits at the gate `lingers`, or fails too; by then its callbacks are published."""
    record("start", self.request.id)
    wait_at(gate)
    record("end", self.request.id)
    if fails:
        raise RuntimeError("as told")


def _linger(self: Any, _: Any, task_id: str, args: Any, kwargs: dict[str, Any], *more: Any) -> None:
    """Both `on_success` and `on_failure` of a task."""
    if kwargs.get("lingers"):
        record("lingers", task_id)
        wait_at(kwargs["lingers"])
    if kwargs.get("hook_fails"):
        raise ValueError("as told, too")


def exhaust_memory(self: Any) -> NoReturn:
    record("start", self.request.id)
    raise MemoryError


def keyed(
    self: Any, lane: str, name: str, gate: str | None = None, fails: int = 0, into: list[str] | None = None
) -> str:
    """As `run`, under a name, ordered by an argument (OPTIONS). Returns it; fails at first, or is replaced, if told."""
    record("start", name)
    wait_at(gate)
    if self.request.retries < fails:
        raise self.retry(countdown=0.01)
    record("end", name)
    if into:
        self.replace(self.s(*into))
    return lane


def compute(self: Any, gate: str) -> None:
    """As `run`, but busy-waits: no other greenlet of the thread runs meanwhile."""
    record("start", self.request.id)
    while not _is_open(gate):
        pass
    record("end", self.request.id)


def plain(self: Any, gate: str | None = None) -> None:
    """`run` on the ordinary queue."""
    record("start", self.request.id)
    wait_at(gate)
    record("end", self.request.id)


def die(self: Any, how: str, times: int) -> None:
    """Kill the own process in the first `times` runs. Each of them records a `start` without an `end`."""
    record("start", self.request.id)
    if self.delivery.died < times:
        _die(how)
    record("end", self.request.id)


def die_always(self: Any, gate: str | None = None) -> NoReturn:
    """Kill the own process in each run; not in the second one before the gate is open."""
    record("start", self.request.id)
    if gate is not None and self.delivery.died:
        wait_at(gate)
    _die("killed")


def _die(how: str) -> NoReturn:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(3)


def raise_system_exit(self: Any) -> NoReturn:
    """Raise a BaseException that is not an Exception."""
    record("start", self.request.id)
    sys.exit(3)


def pace(self: Any, gate: str | None = None, dies: bool = False) -> None:
    """As `run`, with the fence, which is the time of the hand-out (µs). With `dies`, kill the own process once."""
    record("start", self.request.id)
    record(f"fence:{self.delivery.fence}", self.request.id)
    if dies and self.delivery.died == 0:
        _die("killed")
    wait_at(gate)
    record("end", self.request.id)


def fail(self: Any, times: int, countdown: float) -> None:
    """Retry with Celery's `self.retry()` in the first `times` runs."""
    record("start", self.request.id)
    if self.delivery.failed < times:
        record("retry", self.request.id)
        raise self.retry(countdown=countdown, exc=RuntimeError("not yet"))
    record("end", self.request.id)


def back_off(self: Any) -> NoReturn:
    """Always fail; Celery retries it (OPTIONS)."""
    record(f"retries:{self.request.retries}", self.request.id)
    raise RuntimeError("never")


def retry_with(self: Any, *_: Any, **options: Any) -> None:
    """In the first run, retry with these options of Celery's `self.retry()`."""
    record("start", self.request.id)
    if self.request.retries == 0:
        raise self.retry(**options)
    record("end", self.request.id)


def retry_or_bury(self: Any, how: str, gate: str) -> None:
    """In the first run, wait at the gate, then retry or bury the own message."""
    record("start", self.request.id)
    if self.delivery.died == 0:
        wait_at(gate)
        problem = {"type": "late", "message": ""}
        outcome = self.delivery.retry(delay_s=0, problem=problem) if how == "retry" else self.delivery.bury(problem)
        record(outcome.name, self.request.id)
        raise Ignore
    record("end", self.request.id)


def fail_unordered(self: Any, times: int) -> None:
    """`fail` on the ordinary queue."""
    record("start", self.request.id)
    if self.request.retries < times:
        raise self.retry(countdown=0.01, exc=RuntimeError("not yet"))
    record("end", self.request.id)


class TextlessError(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def fail_without_text(self: Any) -> None:
    record("start", self.request.id)
    raise TextlessError


def reject(self: Any, requeue: bool) -> None:
    """Raise Celery's Reject."""
    record("start", self.request.id)
    raise Reject("as told", requeue=requeue and self.delivery.died == 0)


def ask_elsewhere(self: Any, url: str, how: str) -> None:
    """In the first run, ask a server that does not know the message: it is refused."""
    record("start", self.request.id)
    if how == "after":
        self.delivery.commit()
    if _turns_elsewhere(self, url):
        try:
            if how == "call":
                self.delivery.journal.begin("1", "send:")
            else:
                self.delivery.check()
        except lanes.LeaseLost as lost:
            if how == "hide":
                raise RuntimeError("not a loss") from lost
            if how == "swallow":
                return
            if how != "after":
                raise
    record("end", self.request.id)


def _turns_elsewhere(task: Any, url: str) -> bool:
    """True once for a message: its run asks this server from now on, as it would ask a replica that is behind."""
    asked = Path(os.environ[GATES], f"{task.request.id} asked")
    if asked.exists():
        return False
    asked.touch()
    ours = task.delivery.lanes
    task.delivery.lanes = SimpleNamespace(
        store=Store(connect(url)),
        in_flight=ours.in_flight,
        interrupt_listener=ours.interrupt_listener,
        is_controlled=False,
    )
    return True


def close_everything(self: Any) -> None:
    """In the first run, close all files of the process, as daemons do, and open others that reuse the descriptors."""
    record("start", self.request.id)
    if self.delivery.died == 0:
        os.closerange(3, 4096)
        _kept.extend(os.pipe() for _ in range(50))
    record("end", self.request.id)


_kept: list[tuple[int, int]] = []


def clean_up_slowly(self: Any, gate: str) -> None:
    """Wait for an interruption, then wait at the gate before it ends."""
    record("start", self.request.id)
    try:
        wait_at("never")
    finally:
        record("cleanup", self.request.id)
        wait_at(gate)
        record("cleaned", self.request.id)


def ignore_interrupts(self: Any, gate: str) -> None:
    """As `run`, but suppress every interruption."""
    record("start", self.request.id)
    while not _is_open(gate):
        with suppress(BaseException):
            wait_at(gate)


def collect(self: Any, name: str, gate: str | None = None) -> None:
    """As `run`, with the names of all messages of its group."""
    names = [name, *(json.loads(body)[1]["name"] for body in self.delivery.bodies)]
    record("start", "+".join(names))
    if gate == "die" and self.delivery.died == 0:
        _die("killed")
    wait_at(gate if gate != "die" else None)
    record("end", "+".join(names))


def converse(self: Any, name: str, gate: str | None = None, shields: str | None = None, marks: str = "") -> None:
    """As `collect`, with one call to begin with and one at the end, until the gate is open or it is interrupted.

    With `shields`, it is shielded until that gate is open. The arguments are those of the newest message.
    """
    delivery, journal = self.delivery, self.delivery.journal
    collected = [json.loads(body)[1] for body in delivery.bodies]
    names = "+".join([name, *(each["name"] for each in collected)])
    if collected:
        gate, shields = collected[-1].get("gate"), collected[-1].get("shields")
    record("start", names)
    delivery.on_interrupt(lambda: record("told", names))
    for call in delivery.previous_calls():
        record("previous", f"{call.what}={(call.outcome or b'?').decode()}")
    place = journal.position()
    journal.begin(place, f"say:{names}")
    journal.end(place, f"say:{names}", lanes.Kind.DONE, b"said")
    if shields:
        delivery.shield()
        record("shielded", names)
        wait_at(shields)
        delivery.unshield()
    while not (delivery.is_interrupted or gate is None or _is_open(gate)):
        time.sleep(0.005)
    try:
        journal.begin(journal.position(), "say:more")
    except lanes.Interrupted:
        record("refused", names)
        raise
    record("end", names)


def steer(self: Any, name: str, gate: str | None = None, elsewhere: str | None = None, **_: Any) -> None:
    """Take what arrives until the gate is open, or if it is `idle` until nothing arrives. What is taken tells the run
    what to do then: `moves` its place, in the first run only with `once`, `dies` in the first run, or `ends`. The end
    of one run asks the server `elsewhere`.
    """
    delivery, place, idle = self.delivery, 0, 0
    names = [name, *(json.loads(body)[1]["name"] for body in delivery.bodies)]
    record("start", "+".join(names))
    while not (gate is None or _is_open(gate) or (gate == "idle" and idle > 10)):
        taken = delivery.take_arrival(place)
        if taken is None:
            idle += 1
            time.sleep(0.005)
            continue
        idle = 0
        told = json.loads(taken)[1]
        names.append(told["name"])
        record("taken", f"{told['name']}@{place}")
        is_first = delivery.died == 0
        if told.get("moves") or (told.get("once") and is_first):
            place += 1
        if told.get("dies") and is_first:
            _die("killed")
        if told.get("ends"):
            break
    record("end", "+".join(names))
    if elsewhere:
        _turns_elsewhere(self, elsewhere)


def replace(
    self: Any, times: int = 1, into: str = "run", dies: bool = False, gate: str | None = None, lane: str = "lane"
) -> NoReturn:
    """Replace itself by itself, `times` - 1 times, and then by another task, a chord or a group. Before each run ends,
    but after the replacement is published, it dies once or waits at the gate.
    """
    record(f"replace-{times}", self.request.id)
    keyed = {"queue": LANE_QUEUES[0], "headers": lanes.headers([lane])}
    run = self.app.tasks["run"].si().set(ignore_result=False)
    parts = [run.clone().set(**keyed, task_id=f"part-{n}") for n in range(2)]
    parts = [part.set(headers=lanes.headers([part.id])) for part in parts]
    following = {
        "run": lambda: run.set(**keyed),
        "ordinary": lambda: run.set(queue=ORDINARY_QUEUE),
        "chord": lambda: chord(parts, run.set(**keyed)),
        "group": lambda: group(parts),
    }
    again = self.si(times - 1, into, dies, gate, lane).set(**keyed, ignore_result=False)
    try:
        self.replace(again if times > 1 else following[into]())
    except Ignore:
        if dies and self.delivery.died == 0:
            _die("killed")
        wait_at(gate)
        raise


class Recording(Task):
    """A base class of a project: it runs its tasks in a context of its own, and retries them in its own way."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        record("entered", self.request.id)
        return super().__call__(*args, **kwargs)

    def retry(self, *args: Any, **kwargs: Any) -> Any:
        record("own-retry", self.request.id)
        return super().retry(*args, **kwargs)


class Direct(Recording):
    """Calls `run`, as many projects do."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        record("entered", self.request.id)
        return self.run(*args, **kwargs)


class Marking(Task):
    """Ends a stopped message in its own way: records the calls of the stopped run, waits at the gate `marks`."""

    def on_stopped(self, delivery: lanes.Delivery) -> None:
        record("stopped", delivery.id)
        for call in delivery.previous_calls():
            record("previous", f"{call.what}={(call.outcome or b'?').decode()}")
        wait_at(self.request.kwargs.get("marks"))
        record("marked", delivery.id)
        delivery.commit()


class Batching(Task):
    """Receives messages in its own way, as celery-batches does."""

    def Strategy(self, task: Any, app: Any, consumer: Any) -> Any:  # noqa: N802 - Celery's name
        def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **_: Any) -> None:
            record("batched", message.headers["id"])
            message.ack()

        return receive


def fail_once(self: Any) -> None:
    """Retry once."""
    record("start", self.request.id)
    if self.request.retries == 0:
        raise self.retry(countdown=0.01, exc=RuntimeError("not yet"))
    record("end", self.request.id)


def fail_once_directly(self: Any) -> None:
    """`fail_once` with another base class."""
    fail_once(self)


def batch(self: Any) -> None:
    """Never runs: its class receives its messages."""


TASKS = (
    run,
    keyed,
    fail_once,
    fail_once_directly,
    batch,
    replace,
    run_and_linger,
    exhaust_memory,
    fail_without_text,
    converse,
    steer,
    collect,
    compute,
    plain,
    die,
    die_always,
    ask_elsewhere,
    close_everything,
    raise_system_exit,
    retry_or_bury,
    fail,
    pace,
    back_off,
    retry_with,
    fail_unordered,
    reject,
    clean_up_slowly,
    ignore_interrupts,
)


OPTIONS: dict[str, dict[str, Any]] = {
    "keyed": {"lane": "{lane}", "ignore_result": False},
    "fail_once": {"base": Recording},
    "fail_once_directly": {"base": Direct},
    "batch": {"base": Batching},
    "converse": {"base": Marking},
    "run_and_linger": {"on_success": _linger, "on_failure": _linger},
    "back_off": {"autoretry_for": (RuntimeError,), "max_retries": 2, "retry_backoff": 60, "retry_jitter": False},
}


@cache
def _app_from_environment() -> Celery:
    return build(**json.loads(os.environ["LANES_TEST"]))


def __getattr__(name: str) -> Any:
    if name == "app":
        return _app_from_environment()
    raise AttributeError(name)
