"""Garbage in an ordinary queue is logged and dropped; a child that dies while its worker starts is replaced."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress

import pytest

from tests.support.lab import Lab
from tests.support.lab_app import ORDINARY_QUEUE
from tests.support.waiting import until

PROPERTIES = {"delivery_tag": "tag", "delivery_info": {"exchange": "", "routing_key": ORDINARY_QUEUE}}
GARBAGE = {
    "no JSON": b"garbage",
    "no text": b"\xff\xfe",
    "a list": b"[1,2]",
    "a number": b"5",
    "null": b"null",
    "deep": b"[" * 100_000,
    "no properties": b"{}",
    "properties are a list": b'{"properties": [1]}',
    "headers are a list": json.dumps({"body": "", "headers": [1], "properties": PROPERTIES}).encode(),
    "headers are a text": json.dumps({"body": "", "headers": "task", "properties": PROPERTIES}).encode(),
    "a task that is a list": json.dumps({"body": "", "headers": {"task": []}, "properties": PROPERTIES}).encode(),
    "a body that is a number": json.dumps({"body": 5, "headers": {}, "properties": PROPERTIES}).encode(),
    "no delivery info": b'{"body": "", "headers": {}, "properties": {"delivery_tag": "tag"}}',
    "a tag that is a list": b'{"body": "", "headers": {}, "properties": {"delivery_tag": [1], "delivery_info": {}}}',
}


@pytest.mark.parametrize(("pool", "slots"), [("prefork", 1), ("gevent", 5), ("threads", 2)])
def test_garbage_in_an_ordinary_queue_is_dropped(lab: Lab, pool: str, slots: int) -> None:
    # Given a worker
    worker = lab.worker(pool, slots)
    # When all kinds of garbage are pushed to its ordinary queue, and valid messages too
    lab.client.lpush(ORDINARY_QUEUE, *GARBAGE.values())
    lab.publish_unordered("plain", "behind")
    lab.publish("beside", ["lane"])
    # Then the messages run
    lab.ended("behind", "beside")
    # And no garbage is kept, and the worker did not reconnect
    until(lambda: [lab.client.llen(ORDINARY_QUEUE), lab.client.hlen("unacked")] == [0, 0])
    assert "Connection to broker lost" not in worker.log
    assert "Unrecoverable error" not in worker.log
    assert "garbage" not in worker.log
    assert len(re.findall(rf"dropped an invalid message of \d+ bytes from {ORDINARY_QUEUE}: ", worker.log)) > 5
    worker.stop()


@pytest.mark.first_only
@pytest.mark.parametrize("moment", range(3))
def test_a_child_killed_during_startup_is_replaced(lab: Lab, moment: int) -> None:
    # Given a worker that is starting
    worker = lab.worker("prefork", 4, is_awaited=False)
    # When its first children are killed as soon as they exist
    killed = until(worker.children)
    if moment:
        until(lambda: len(worker.children()) == 4)
    for child in killed if moment < 2 else worker.children():
        with suppress(ProcessLookupError):  # the first one may be a command that the worker runs while it starts
            os.kill(child, signal.SIGKILL)
    # Then they are replaced, and the new children run messages
    worker.tells(" ready.")
    lab.publish_many({f"m{n}": [f"lane{n}"] for n in range(20)})
    lab.drained()
    lab.check_once_each()
    worker.stop()
