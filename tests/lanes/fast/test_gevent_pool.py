"""The greenlet pool of `-P gevent` behaves as Celery's. It runs in its own process, because gevent patches Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.fast("gevent_pool")

PROGRAM = """
from gevent import monkey
monkey.patch_all()
from types import SimpleNamespace
import gevent
from celery.concurrency.gevent import TaskPool
from gevent.event import Event
from celery_lanes.fast import gevent_pool

pool = TaskPool(2)
gevent_pool.apply(SimpleNamespace(pool=pool))
pool.start()
results, pids, go_on = [], [], Event()

def accepted(pid, at_s):
    pids.append(pid)

def apply(job, **how):
    return pool.apply_async(job, callback=results.append, accept_callback=accepted, **how)

# Two jobs occupy the slots, and a third waits for one
first, second = apply(lambda: gevent.sleep(60)), apply(lambda: go_on.wait() and "second")
third = gevent.spawn(apply, lambda: "third")
gevent.sleep(0.01)
assert len(pids) == len(set(pids)) == 2 and not third.ready(), pids
# A terminated job has not failed, and the third one gets its slot
pool.terminate_job(pids[0])
third.get(timeout=60).join()
assert results == [(False, None, None), "third"], results
# A timeout calls the callback
on_timeout = lambda soft, s: results.append(("timeout", soft, s))
apply(lambda: gevent.sleep(60), timeout=0.01, timeout_callback=on_timeout).join()
assert results[2:] == [("timeout", False, 0.01)], results
# A failing callback frees the slot; grow adds a slot
pool.grow(1)
for _ in range(3):
    pool.apply_async(lambda: 1, callback=lambda _: 1 / 0, accept_callback=accepted).join()
# stop waits for all jobs
gevent.spawn_later(0.01, go_on.set)
pool.stop()
assert results[3:] == ["second"], results
assert pool._pool.running == {} and pool._pool._semaphore.counter == 3
print("passed")
"""


@pytest.mark.slow
def test_the_greenlet_pool_behaves_as_celerys() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout == "passed\n", ended.stderr
