"""A message that cannot run is buried with a reason. Its lane and the worker continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from celery.bin.base import CLIContext
from celery.bin.purge import purge
from click.testing import CliRunner

import celery_lanes as lanes
from celery_lanes.protocol import NewMessage, envelope, keys, script
from celery_lanes.protocol.codec import dumps
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker, needs_batches
from tests.support.lab_app import LANE_QUEUES, ORDINARY_QUEUE

QUEUE = LANE_QUEUES[0]


def unknown_task(lab: Lab, name: str) -> None:
    lab.app.send_task("no.such.task", task_id=name, queue=QUEUE, headers=lanes.headers([name]))


def body(content: str) -> Callable[[Lab, str], None]:
    """Publishes a message of the task `run` with this body."""

    def publish(lab: Lab, name: str) -> None:
        stored = envelope.pack_task("run", "()", content.encode())
        lab.store.append([NewMessage(name, QUEUE, stored, [name])])

    return publish


def headers(**headers: object) -> Callable[[Lab, str], None]:
    """Publishes a message with these headers and a body without arguments."""

    def publish(lab: Lab, name: str) -> None:
        stored = dumps({"headers": {"id": name, **headers}}) + b"\n[[], {}, {}]"
        lab.store.append([NewMessage(name, QUEUE, stored, [name])])

    return publish


def pickled(lab: Lab, name: str) -> None:
    with lab.app.producer_pool.acquire(block=True) as producer:
        producer.publish(
            b"\x80\x04.",
            routing_key=QUEUE,
            exchange="",
            content_type="application/x-python-serialize",
            content_encoding="binary",
            headers={"id": name, "task": "run", **lanes.headers([name])},
        )


def no_message(lab: Lab, name: str) -> None:
    lab.store.append([NewMessage(name, QUEUE, b"neither JSON nor anything", [name])])


BAD = {
    "unknown task": unknown_task,
    "no JSON": body("{not json"),
    "no triple": body('{"a": 1}'),
    "a number": body("5"),
    "a pair": body("[1, 2]"),
    "no embed": body("[[], {}, [1]]"),
    "pickled": pickled,
    "no message": no_message,
    "no task": headers(),
    "wrong eta": headers(task="run", eta="tomorrow"),
}


@pytest.mark.parametrize(("pool", "slots"), [("solo", 1), ("prefork", 1), ("gevent", 5)])
def test_a_message_that_cannot_run_is_buried(lab: Lab, pool: str, slots: int) -> None:
    # Given a bad message of each kind, each one first in its own lane
    for name, publish in BAD.items():
        publish(lab, name)
        lab.publish(f"behind {name}".replace(" ", "-"), [name])
    # When a worker receives them
    worker = lab.worker(pool, slots)
    lab.drained()
    # Then each is buried with a reason, each lane continues, and the worker does not reconnect
    assert sorted(ids(lab.history, "end")) == sorted(f"behind {name}".replace(" ", "-") for name in BAD)
    assert sorted(lab.dead()) == sorted(BAD)
    assert all('"message"' in lab.problem(name) for name in BAD)
    assert "Connection to broker lost" not in worker.log


def test_a_lane_continues_however_its_task_ends(lab: Lab, pool: tuple[str, int]) -> None:
    lab.publish("bury", ["a"], task="reject", requeue=False)
    lab.publish("behind:a", ["a"])
    lab.publish("again", ["b"], task="reject", requeue=True)
    lab.publish("behind:b", ["b"])
    lab.publish("exit", ["c"], task="raise_system_exit")
    lab.publish("behind:c", ["c"])
    worker = lab.worker(*pool)
    lab.drained()
    worker.stop()
    assert set(lab.dead()) == {"bury", "again"}
    assert "Reject(requeue=False)" in lab.problem("bury")
    started = ids(lab.history, "start")
    assert [name for name in started if name in ("bury", "behind:a")] == ["bury", "behind:a"]
    assert [name for name in started if name in ("again", "behind:b")] == ["again", "again", "behind:b"]
    # And sys.exit() is a failure of the task like any error: its worker and its slot survive
    assert [name for name in started if name in ("exit", "behind:c")] == ["exit", "behind:c"]
    assert "HandlerEndedError" in worker.log


def test_a_lane_continues_after_a_failed_task(lab: Lab) -> None:
    body('[[], {"nonsense": 1}, {}]')(lab, "bad")
    lab.publish("behind", ["bad"])
    lab.worker("prefork", 1)
    lab.drained()
    assert ids(lab.history, "end") == ["behind"]


def test_a_message_with_more_lanes_than_a_publisher_may_give_it_stops_nobody(lab: Lab) -> None:
    # Given a message that some other program has stored with 30,000 lanes, and one behind it
    stored = envelope.pack_task("run", "()", b"[[], {}, {}]")
    many = "\n".join(f"lane:{n}" for n in range(30_000))
    row = ("many", QUEUE, stored, "", "", "", "", 0, 0, "", many)
    fixed: dict[str, Any] = {"seen_ttl_s": 60, "seen_block": keys.SEEN_BLOCK, "fence": "", "sets": "", "hold_ms": 0}
    lab.store.run(script("append").command((), [row], **fixed))
    lab.publish("behind", ["lane:29999"])
    lab.publish("beside", ["other"])
    # When a worker serves them, then all run, and the lanes are empty
    worker = lab.worker("solo")
    lab.drained()
    assert set(ids(lab.history, "end")) == {"many", "behind", "beside"}
    assert list(lab.client.scan_iter("lanes:lane:*", count=10_000)) == []
    assert "Redis refuses fetches" not in worker.log


@pytest.mark.parametrize("field", ["seq", "died", "failed", "interrupted", "replayed"])
def test_a_record_that_no_script_can_handle_is_buried_and_stops_nobody(lab: Lab, field: str) -> None:
    # Given a message whose record another program has spoilt, one behind it, and one beside it
    lab.publish("spoilt", ["lane"])
    lab.publish("behind", ["lane"])
    lab.publish("beside", ["other"])
    lab.client.hset(keys.message("spoilt"), mapping={"fence": 1, field: "abc"})
    # When a worker serves them, then the others run, and it is buried
    worker = lab.worker("solo")
    lab.drained()
    assert set(ids(lab.history, "end")) == {"behind", "beside"}
    assert lab.dead() == ["spoilt"]
    assert "no script can handle it" in lab.problem("spoilt")
    assert "Redis refuses fetches" not in worker.log
    assert "Traceback" not in worker.log


def test_celerys_retry_stays_first_and_runs_when_due(make_lab: LabMaker, pool: tuple[str, int]) -> None:
    # Given a worker that sweeps only when it knows that a retry is due
    lab = make_lab(sweeps=False)
    lab.publish("retried", ["lane"], task="fail", times=2, countdown=0.05)
    lab.publish("behind", ["lane"])
    lab.publish("beside", ["other"])
    lab.worker(*pool)
    lab.drained()
    assert [name for name in ids(lab.history, "start") if name != "beside"] == ["retried"] * 3 + ["behind"]
    assert lab.count("retried") == 2
    assert lab.count("appended") == 3


def test_a_message_of_stock_celery_in_a_lane_queue_runs(lab: Lab) -> None:
    # Given a message that an app without lanes published to a lane queue
    lab.publish_unordered("plain", "foreign")
    lab.client.rename(ORDINARY_QUEUE, QUEUE)
    # When a worker receives it
    lab.worker("prefork", 2)
    # Then it runs and is settled
    lab.ended("foreign")
    lab.drained()
    assert lab.client.keys("lanes:message:*") == []


def test_purge_and_delete_of_a_lane_queue_bury_its_messages(lab: Lab) -> None:
    for name in ("a1", "a2", "b1"):
        lab.publish(name, [name[0]])
    with lab.app.connection_for_write() as connection:
        queue = lab.app.amqp.queues[QUEUE].bind(connection.default_channel)
        queue.declare()
        assert queue.purge() == 3
        assert set(lab.dead()) == {"a1", "a2", "b1"}
        lab.publish("a3", ["a"])
        queue.delete()
    assert set(lab.dead()) == {"a1", "a2", "b1", "a3"}
    assert lab.pending() == 0


def test_a_queue_that_another_client_deleted_is_repaired(lab: Lab) -> None:
    lab.publish("first", ["lane"])
    lab.publish("second", ["lane"])
    lab.client.delete(QUEUE)
    lab.worker("solo")
    lab.drained()
    lab.check_once_each()


def test_celery_purge_buries(lab: Lab) -> None:
    lab.publish("m", ["lane"])
    assert lab.app.control.purge() == 1
    assert lab.dead() == ["m"]


@pytest.mark.parametrize("words", [["-f"], ["-f", "-Q", "celery.lanes"]])
def test_the_command_purge_buries(redis_url: str, words: list[str]) -> None:
    def app() -> Celery:
        made = Celery("shop", broker=redis_url, set_as_current=False)
        lanes.install(made)

        @made.task(name="charge", lane="customer:{customer}", shared=False)
        def charge(customer: int) -> None: ...

        return made

    with app() as shop, app() as other:
        for customer in (1, 1, 2):
            shop.tasks["charge"].delay(customer)
        # When it declares no queue, as in a process of its own
        ended = CliRunner().invoke(purge, words, obj=CLIContext(other, True, None))
        assert "Purged 3 messages" in ended.output
        assert (shop.lanes.store.client.zcard(keys.DEAD), shop.lanes.store.pending()) == (3, 0)


@needs_batches
def test_a_batch_is_one_append_even_if_scripts_are_flushed(lab: Lab) -> None:
    # Given scripts that Redis has loaded, and loses while a batch is being built
    lab.publish("first", ["lane"])
    lab.client.config_resetstat()
    with lab.app.producer_pool.acquire(block=True) as producer, producer.batch():
        for n in range(50):
            lab.send(f"m{n}", ["lane"], producer=producer)
        lab.client.script_flush()
    # Then all messages are in their lane, in order, by one append (which was sent twice)
    stats = lab.client.info("commandstats")["cmdstat_evalsha"]
    assert stats["calls"] - stats["rejected_calls"] - stats["failed_calls"] == 1
    assert [name.decode() for name in lab.client.zrange("lanes:lane:lane", 0, -1)] == [
        "first",
        *(f"m{n}" for n in range(50)),
    ]


@needs_batches
def test_a_batch_for_both_kinds_of_queues_reaches_both(lab: Lab) -> None:
    with lab.app.producer_pool.acquire(block=True) as producer, producer.batch():
        lab.send("m", ["lane"], producer=producer)
        lab.publish_unordered("plain", "p", producer=producer)
    lab.worker("solo")
    lab.ended("m", "p")


def test_a_message_published_twice_with_the_same_once_is_stored_once(lab: Lab) -> None:
    for name in ("m", "m2"):
        lab.app.tasks["run"].apply_async(task_id=name, queue=QUEUE, headers=lanes.headers(["lane"], once=("shop", 7)))
    assert (lab.count("appended"), lab.count("seen"), lab.pending()) == (1, 1, 1)
