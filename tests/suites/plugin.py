"""A plugin of pytest that gives lanes to what the suites of Celery and kombu test, and stores the results.

`SUITE_LANES` is empty (stock); `installed`: every app has lanes, and its queues are ordinary ones; or `used`: every
task of an app is in a lane, which is named as the task. `SUITE_RESULTS` is a file, which gets the result of each test;
tests whose result it has are not run.

A test that takes longer than TEST_SECONDS has failed, and ends this process group. The timeouts of the suites do not
end a test that catches them, as a subtest does.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from celery.contrib.testing import app as testing
from kombu import Connection, Queue

LANES = os.environ["SUITE_LANES"]
RESULTS = Path(os.environ["SUITE_RESULTS"])
#: For a test with its repetitions. The longest one of the suites waits for four minutes in all.
TEST_SECONDS = 600

_test_app = testing.TestApp
_transport_cls = Connection.get_transport_cls
_results: dict[str, str] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def pytest_configure() -> None:
    if LANES:
        testing.TestApp = app_with_lanes


def pytest_collection_modifyitems(items: list[Any]) -> None:
    items[:] = [item for item in items if item.nodeid not in _results]


def pytest_collection_finish() -> None:
    """Lanes are imported later than the modules of kombu's tests, which replace parts that the transport imports."""
    if LANES:
        Connection.get_transport_cls = transport_cls


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    limit = threading.Timer(TEST_SECONDS, end, [item.nodeid])
    limit.start()
    try:
        return (yield)
    finally:
        limit.cancel()


def end(test: str) -> None:
    _results[test] = "failed"
    pytest_sessionfinish()
    os.killpg(0, signal.SIGKILL)


def pytest_runtest_logreport(report: Any) -> None:
    """A test fails if a part of it does, unless it passes when it is run again."""
    if report.outcome == "rerun":
        _results.pop(report.nodeid, None)
    elif report.when == "call" or report.outcome != "passed":
        known = _results.get(report.nodeid)
        _results[report.nodeid] = known if known == "failed" else report.outcome


def pytest_sessionfinish() -> None:
    RESULTS.write_text(json.dumps(_results))


def app_with_lanes(*arguments: Any, **options: Any) -> Any:
    lanes = import_module("celery_lanes")
    app = _test_app(*arguments, **options)
    lanes.install(app)
    if LANES == "used":
        app.conf.task_queues = [Queue("celery", routing_key="celery", queue_arguments=lanes.QUEUE_ARGUMENTS)]
        app.conf.task_routes = (in_a_lane,)
    return app


def in_a_lane(name: str, *_: Any, **__: Any) -> dict[str, Any]:
    return {"queue": "celery", "lane": [name]}


def transport_cls(connection: Any) -> Any:
    stock, lanes = import_module("kombu.transport.redis"), import_module("celery_lanes.transport.transport")
    instead = {
        stock.Transport: lanes.LanesTransport,
        stock.SentinelTransport: lanes.LanesSentinelTransport,
    }
    found = _transport_cls(connection)
    return instead.get(found, found)
