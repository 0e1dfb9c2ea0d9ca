"""How often messages arrive when a worker is killed or frozen at each step of a call."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from celery_lanes.protocol import Store
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.steps import database, open_shop
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.process import Process
from tests.support.waiting import until

#: The orders of an update -> how often its second message arrives. If the call is in flight, that depends on the
#: policy; UNCERTAIN_CALL is repeat.
CASES = {
    "held:before_begin": 1,
    "held:before_begin swallows:yes": 1,
    "held:after_begin": 1,
    "held:after_begin uncertain:skip": 0,
    "held:after_send": 2,
    "held:after_send uncertain:skip": 1,
    "held:after_record": 1,
    "held:before_ack": 1,
}
IN_FLIGHT = 4


def kill_children(pipeline: Pipeline, worker: Process) -> None:
    """Kill each child that runs an update; their worker continues."""
    for child in {event.pid for event in pipeline.history if event.what.startswith("at-")}:
        os.kill(child, signal.SIGKILL)


def kill_worker(pipeline: Pipeline, worker: Process) -> None:
    """Kill the worker with all its processes and start another one."""
    worker.kill_all()
    pipeline.worker("threads", len(CASES))


def freeze(pipeline: Pipeline, worker: Process) -> None:
    """Freeze the worker for longer than its leases, let another one do its work, and then thaw it."""
    worker.freeze()
    pipeline.worker("threads", len(CASES))
    until(lambda: pipeline.count("settled") == len(CASES))
    pipeline.open("go")
    worker.thaw()
    worker.stop()


@pytest.mark.parametrize(
    ("pool", "fault"),
    [
        ("prefork", kill_children),
        ("threads", kill_worker),
        ("gevent", kill_worker),
        ("prefork", freeze),
        ("threads", freeze),
    ],
)
def test_only_a_call_in_flight_is_repeated(make_pipeline: MakePipeline, pool: str, fault: object) -> None:
    # Given updates that send three messages each, every one held at a step of the second message
    pipeline = make_pipeline(BOT="tests.pipeline.steps:handle", LEASE_SECONDS=2)
    open_shop(pipeline.directory)
    pipeline.push(*(message(n, n, do=do) for n, do in enumerate(CASES, 1)))
    pipeline.poller()
    worker = pipeline.worker(pool, len(CASES))
    until(lambda: sum(event.what.startswith("at-") for event in pipeline.history) == len(CASES))
    # When their processes are killed or frozen
    fault(pipeline, worker)  # type: ignore[operator]
    # Then every update ends, and every message has arrived as often as expected
    pipeline.drained()
    arrived = messages(pipeline)
    for n, (case, times) in enumerate(CASES.items(), 1):
        assert (case, *(arrived[f"{which} #{n}"] for which in ("one", "two", "three"))) == (case, 1, times, 1)
    assert pipeline.count("uncertain") == IN_FLIGHT
    # And each payment is made once in the bot's own database
    assert balance(pipeline) == 100 - 5 * len(CASES)
    assert pipeline.leftovers() == []


def balance(pipeline: Pipeline) -> int:
    with database(str(pipeline.directory)) as db:
        [[found]] = db.execute("SELECT balance FROM accounts")
    return int(found)


def messages(pipeline: Pipeline) -> Counter[str]:
    """How often each text arrived."""
    return Counter(call["params"]["text"] for call in pipeline.simulator.calls("sendMessage") if call["ok"])


def test_a_failed_handler_repeats_no_call(make_pipeline: MakePipeline) -> None:
    # Given two updates that fail after their second message: one twice, the other until it is fixed; and one of the
    # first messages arrives, but its response is lost
    pipeline = make_pipeline(
        BOT="tests.pipeline.steps:handle", RETRY_BACKOFF=0.01, MAX_ATTEMPTS=3, UNCERTAIN_CALL="skip"
    )
    open_shop(pipeline.directory)
    pipeline.simulator.fault(method="sendMessage", takes_effect=True, reset=True)
    _, buried = pipeline.push(message(1, 1, do="fails:2"), message(2, 2, do="fails:9"))
    pipeline.poller()
    pipeline.worker("prefork", 2)
    pipeline.drained()
    # Then the one has sent each message once, and the other the two before its failure; it is buried
    assert pipeline.dead() == [f"{BOT_ID}:{buried}"]
    assert messages(pipeline) == Counter(["one #1", "two #1", "three #1", "one #2", "two #2"])
    # And when the failure is fixed and the update replayed, it sends only the missing message
    pipeline.open("fixed")
    assert Store(pipeline.redis).replay(f"{BOT_ID}:{buried}")
    pipeline.drained()
    assert messages(pipeline) == Counter(f"{which} #{n}" for which in ("one", "two", "three") for n in (1, 2))
    assert pipeline.leftovers() == []
