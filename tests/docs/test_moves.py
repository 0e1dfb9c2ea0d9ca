"""docs/migrate: the code of the pages on moving in, before and after, and the test that they show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import FENCE, ROOT
from tests.support.process import Process
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PACKAGE = ROOT / "packages/celery-lanes"


def blocks(page: str) -> dict[str, str]:
    """The Python of a page, by the comment in the first line of each block."""
    found = [text for kind, text in FENCE.findall((ROOT / "docs/migrate" / page).read_text()) if kind == "python"]
    return {text.partition("\n")[0].removeprefix("# "): text for text in found}


class Project:
    """A folder with one file, on an empty server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.env = {"PYTHONPATH": f"{PACKAGE}:{folder}", "CELERY_BROKER_URL": url}
        self.running: list[Process] = []

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *arguments: str) -> str:
        """The output of a Python program that must succeed."""
        process = Process("program", [sys.executable, *arguments], self.folder, self.env)
        self.running.append(process)
        until(lambda: not process.is_running())
        assert process.exit_code() == 0, process.log
        return process.log

    def worker(self, module: str, *arguments: str) -> Process:
        command = [sys.executable, "-m", "celery", "-A", module, "worker", "-l", "INFO", "-c", "2", *arguments]
        self.running.append(Process("worker", command, self.folder, self.env))
        return self.running[-1]


@pytest.fixture
def project(redis_url: str, tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, redis_url)
    yield made
    for process in made.running:
        process.end()


def payments(worker: Process) -> list[tuple[str, int]]:
    return [(customer, int(total)) for customer, total in re.findall(r"customer (\d+) pays (\d+)", worker.log)]


def in_order(paid: list[tuple[str, int]], count: int) -> bool:
    """True if there are this many, those of each customer in order."""
    return len(paid) == count and all(
        (mine := [total for customer, total in paid if customer == each]) == sorted(mine) for each, _ in paid
    )


@pytest.mark.parametrize(
    ("page", "publish", "queues"),
    [
        ("queues.md", "publish(n % 5, n)", [f"charges.{n}" for n in range(8)]),
        ("locks.md", "charge.delay(n % 5, n)", ["celery"]),
    ],
)
def test_the_backlog_of_the_old_code_runs_with_the_new(
    project: Project, page: str, publish: str, queues: list[str]
) -> None:
    # Given what the code of before has published
    project.write("shop.py", blocks(page)["shop.py, before"])
    project.run("-c", f"from shop import *\nfor n in range(40): {publish}")
    # When the code of after moves it and runs it
    project.write("shop.py", blocks(page)["shop.py"])
    said = "".join(project.run("-m", "celery", "-A", "shop", "lanes", "adopt", queue) for queue in queues)
    worker = project.worker("shop")
    # Then it runs in order, and so do messages that are published now
    assert sum(map(int, re.findall(r"moved: (\d+) of shop.charge into celery.lanes", said))) == 40
    until(lambda: in_order(payments(worker), 40))
    project.run("-c", f"from shop import *\nfor n in range(40, 80): {publish}")
    until(lambda: in_order(payments(worker), 80))


def test_the_test_of_the_move(project: Project) -> None:
    project.write("shop.py", blocks("queues.md")["shop.py"])
    project.write("test_move.py", blocks("queues.md")["test_move.py"])
    plugins = ["-p", "pytest_celery_lanes", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-c", "/dev/null", "test_move.py"]
    ran = subprocess.run(
        command, cwd=project.folder, env={**project.env, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_a_report_is_queued_at_most_once(project: Project) -> None:
    project.write("reports.py", blocks("locks.md")["reports.py"])
    project.run("-c", "from reports import ask\nfor _ in range(5): ask(9)")
    worker = project.worker("reports")
    worker.tells("report of customer 9")
    project.run("-c", "from reports import ask\nask(9); ask(8)")
    until(lambda: worker.log.count("report of customer 9") == 2 and "report of customer 8" in worker.log)


def test_an_order_of_sqs_is_published_once(project: Project) -> None:
    project.write("shop.py", blocks("sqs.md")["shop.py"])
    project.run("-c", "from shop import publish\nfor n in range(10): publish(9, n // 2, n // 2)")
    worker = project.worker("shop")
    until(lambda: in_order(payments(worker), 5))
