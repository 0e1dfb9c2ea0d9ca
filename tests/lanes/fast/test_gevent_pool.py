"""The greenlets of `-P gevent` do what Celery's pool does. In a process of its own: gevent changes all of Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.fast("gevent_pool")

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import gevent
from celery.concurrency.gevent import TaskPool
from gevent.event import Event
from chatlanes.lanes.fast.gevent_pool import use_slots

pool = TaskPool(2)
use_slots(pool)
pool.start()
told, pids, go_on = [], [], Event()

def accepted(pid, at_s):
    pids.append(pid)

def apply(job, **how):
    return pool.apply_async(job, callback=told.append, accept_callback=accepted, **how)

# Two fill the slots, and a third waits for one
first, second = apply(lambda: gevent.sleep(60)), apply(lambda: go_on.wait() and "second")
third = gevent.spawn(apply, lambda: "third")
gevent.sleep(0.01)
assert len(pids) == len(set(pids)) == 2 and not third.ready(), pids
# One is told to end: that is no failure, and the third has its slot
pool.terminate_job(pids[0])
third.get(timeout=60).join()
assert told == [(False, None, None), "third"], told
# Whose time is over is told of
apply(lambda: gevent.sleep(60), timeout=0.01, timeout_callback=lambda soft, s: told.append(("over", soft, s))).join()
assert told[2:] == [("over", False, 0.01)], told
# What fails outside of its task takes no slot with it; a slot more is a slot more
pool.grow(1)
for _ in range(3):
    pool.apply_async(lambda: 1, callback=lambda _: 1 / 0, accept_callback=accepted).join()
# The end of the pool waits for all
gevent.spawn_later(0.01, go_on.set)
pool.stop()
assert told[3:] == ["second"], told
assert pool._pool.running == {} and pool._pool._semaphore.counter == 3
print("as Celery has it")
"""


def test_greenlets_are_bounded_ended_timed_and_waited_for() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout == "as Celery has it\n", ended.stderr
