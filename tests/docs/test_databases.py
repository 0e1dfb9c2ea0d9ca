"""docs/databases.md: each recipe, as printed, has its effect once, when a worker is frozen in it or killed after it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import Store, connect
from tests.docs.pages import FENCE, blocks, sections
from tests.docs.tutorial import steps
from tests.support import ROOT
from tests.support.databases import Database, Databases
from tests.support.outside import outside
from tests.support.process import Process
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PAGE = ROOT / "docs/databases.md"
README = (ROOT / "packages/celery-lanes/README.md").read_text()
RECIPES = {heading: text for heading, text in sections(PAGE) if any(step.file for step in steps(text))}
OUTBOX = {
    step.file: step.text for step in steps(RECIPES.pop("The outbox: a transaction and its task are one")) if step.file
}
#: The files of the README that the recipe of Django needs.
DJANGO = {step.file: step.text for step in steps(README) if step.file in ("shop/celery.py", "shop/__init__.py")}
SETTINGS = """
INSTALLED_APPS += ["celery_lanes.django", "celery_lanes.django.outbox", "orders"]
CELERY_BROKER_URL = "{broker}"
CELERY_BROKER_TRANSPORT_OPTIONS = {{"lease_seconds": 1}}
DATABASES = {{"default": {database}}}
import pymysql
pymysql.install_as_MySQLdb()
"""
#: Added to the module of the task: the first run that reaches a closed gate waits there.
GATES = """
import time
from pathlib import Path

from celery import signals
from celery_lanes import LaneTask

{app}.conf.broker_transport_options = {{"lease_seconds": 1}}
fence_of = LaneTask.fence.fget


def wait_at(gate):
    gate = Path({folder!r}, gate)
    try:
        gate.rename(f"{{gate}} reached")
    except FileNotFoundError:
        return
    while not Path(f"{{gate}} open").exists():
        time.sleep(0.01)


def fence(self):
    found = fence_of(self)
    wait_at("before the write")
    return found


LaneTask.fence = property(fence)
signals.task_success.connect(lambda **_: wait_at("after the commit"), weak=False)
"""


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    with Databases() as made:
        yield made


@dataclass
class Bank:
    """The files of a recipe in `folder`, and its tables in `database`."""

    recipe: str
    folder: Path
    database: Database
    broker: str
    processes: list[Process] = field(default_factory=list)

    @property
    def app(self) -> str:
        return "shop" if self.recipe == "Django" else "bank"

    def write(self) -> None:
        if self.recipe == "Django":
            self.run("-m", "django", "startproject", "shop", ".")
            self.run("manage.py", "startapp", "orders")
            for file in ("shop/celery.py", "shop/__init__.py"):
                (self.folder / file).write_text(DJANGO[file])
            with (self.folder / "shop/settings.py").open("a") as settings:
                settings.write(SETTINGS.format(broker=self.broker, database=self.database.of_django))
        for step in steps(RECIPES[self.recipe]):
            assert step.file
            (self.folder / step.file).write_text(self.here(step.text))
        tasks = self.folder / ("orders/tasks.py" if self.recipe == "Django" else "bank.py")
        app = "charge.app" if self.recipe == "Django" else "app"
        tasks.write_text(tasks.read_text() + GATES.format(folder=str(self.folder), app=app))

    def here(self, text: str) -> str:
        """The code of the page, with the addresses of the test."""
        place = {"host": "127.0.0.1", "port": self.database.port, "user": "root", "database": self.database.name}
        addresses = {
            "redis://localhost/0": self.broker,
            "postgresql+psycopg://localhost/bank": self.database.of_sqlalchemy,
            "postgresql://localhost/bank": self.database.url,
            '{"host": "localhost", "user": "bank", "database": "bank"}': repr(place),
        }
        for theirs, ours in addresses.items():
            text = text.replace(theirs, ours)
        assert "localhost" not in text
        return text

    def make_tables(self) -> None:
        """Customer 9 has 100."""
        if self.recipe == "Django":
            self.run("manage.py", "makemigrations", "orders")
            self.run("manage.py", "migrate")
        else:
            [schema] = [block.text for block in blocks() if block.page == PAGE and block.kind == "sql"]
            self.write_rows(*schema.strip().rstrip(";").split(";"))
        self.write_rows(f"INSERT INTO {self.table('account')} (customer, balance, fence) VALUES (9, 100, 0)")  # noqa: S608

    def table(self, name: str) -> str:
        return f"orders_{name}" if self.recipe == "Django" else f"{name}s"

    def write_rows(self, *statements: str) -> None:
        with closing(self.database.connect()) as database:
            for statement in statements:
                database.cursor().execute(statement)
            database.commit()

    def rows(self, columns: str, table: str) -> list[tuple[Any, ...]]:
        with closing(self.database.connect()) as database:
            cursor = database.cursor()
            cursor.execute(f"SELECT {columns} FROM {self.table(table)}")  # noqa: S608
            return list(cursor.fetchall())

    def run(self, *words: str) -> None:
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={**outside(), "PYTHONPATH": f"{ROOT}:{self.folder}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def charge(self, total: int) -> None:
        if self.recipe == "Django":
            self.run("manage.py", "shell", "-c", f"from orders.tasks import charge; charge.delay(9, total={total})")
        else:
            self.run("-c", f"from bank import charge; charge.delay(9, total={total})")

    def worker(self) -> Process:
        words = ("-A", self.app, "worker", "-c", "2", "-l", "INFO", "--without-mingle", "--without-gossip")
        name = f"worker{len(self.processes)}"
        command = [sys.executable, "-m", "celery", *words, "-n", f"{name}@%h"]
        self.processes.append(Process(name, command, self.folder, {"PYTHONPATH": f"{ROOT}:{self.folder}"}))
        return self.processes[-1]

    # -- gates

    def close(self, gate: str) -> None:
        (self.folder / gate).touch()

    def wait_until_reached(self, gate: str) -> None:
        until((self.folder / f"{gate} reached").exists)

    def open(self, gate: str) -> None:
        (self.folder / f"{gate} open").touch()


EVERYWHERE = [("Django", "sqlite"), ("SQLAlchemy", "sqlite")]
WITH_A_SERVER = [
    *(("PostgreSQL", "postgresql"), ("Django", "postgresql"), ("SQLAlchemy", "postgresql")),
    *(("MySQL and MariaDB", "mysql"), ("Django", "mysql"), ("SQLAlchemy", "mysql")),
]


@pytest.fixture
def bank(request: pytest.FixtureRequest, databases: Databases, server: Server, tmp_path: Path) -> Iterator[Bank]:
    recipe, kind = request.param
    with connect(server.url) as client:
        client.flushall()
    made = Bank(recipe, tmp_path, databases.make(kind, tmp_path), server.url)
    try:
        made.write()
        made.make_tables()
        yield made
    finally:
        for process in made.processes:
            process.end()


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    with connect(server.url) as client:
        yield Store(client)


def test_every_recipe_is_tested() -> None:
    assert {case[0] for case in (*EVERYWHERE, *WITH_A_SERVER)} == RECIPES.keys()
    assert all(FENCE.search(text) for text in RECIPES.values())
    assert re.search("tests/docs/test_databases.py", PAGE.read_text())


def case_of(*case: str, **marked: Any) -> Any:
    return pytest.param(case, id="-".join(case), **marked)


each_recipe = pytest.mark.parametrize(
    "bank",
    [
        *(case_of(*case) for case in EVERYWHERE),
        *(case_of(*each, marks=pytest.mark.exhaustive) for each in WITH_A_SERVER),
    ],
    indirect=True,
)


@each_recipe
def test_the_write_of_a_frozen_worker_is_refused(bank: Bank, store: Store) -> None:
    # Given a worker that is frozen in its task, before it writes
    bank.close("before the write")
    bank.charge(20)
    frozen = bank.worker()
    bank.wait_until_reached("before the write")
    frozen.freeze()
    # When another worker has run the message, and wakes up the first one
    bank.worker()
    until(lambda: store.pending() == 0)
    after = bank.rows("balance, fence", "account")
    bank.open("before the write")
    frozen.thaw()
    # Then the write of the first one changes nothing, and its run counts for nothing
    frozen.tells("ignored")
    assert after[0][0] == 80
    assert after[0][1] > 10**15
    assert bank.rows("balance, fence", "account") == after
    assert bank.rows("customer, total", "charge") == [(9, 20)]


@each_recipe
def test_a_worker_that_is_killed_after_its_commit_has_written_once(bank: Bank, store: Store) -> None:
    # Given a worker that has committed, and has not settled its message
    bank.close("after the commit")
    bank.charge(20)
    killed = bank.worker()
    bank.wait_until_reached("after the commit")
    [(balance, fence)] = bank.rows("balance, fence", "account")
    assert balance == 80
    assert store.pending() == 1
    # When it is killed, another worker runs the message again, and the next one
    killed.kill_all()
    bank.charge(30)
    bank.worker()
    until(lambda: store.pending() == 0)
    # Then each has its effect once
    [(balance, later)] = bank.rows("balance, fence", "account")
    assert (balance, later > fence) == (50, True)
    assert sorted(bank.rows("customer, total", "charge")) == [(9, 20), (9, 30)]


SIGN_UP = {
    "Django": """
from django.test import RequestFactory
from orders.views import sign_up

assert sign_up(RequestFactory().post("/", {"customer": 7})).status_code == 202
""",
    "SQLAlchemy": """
import web

web.Base.metadata.create_all(web.engine)
web.sign_up(7)
""",
}


@pytest.mark.parametrize("bank", [case_of(*case) for case in EVERYWHERE], indirect=True)
def test_the_outbox_of_the_page(bank: Bank, store: Store) -> None:
    for file, text in OUTBOX.items():
        if file.startswith("orders/") == (bank.recipe == "Django"):
            (bank.folder / file).write_text(text)
    django = ("manage.py", "shell") if bank.recipe == "Django" else ()
    bank.run(*django, "-c", SIGN_UP[bank.recipe])
    assert store.pending() == 1
    bank.worker()
    until(lambda: store.pending() == 0)
    assert sorted(bank.rows("customer, balance", "account")) == [(7, 80), (9, 100)]
    app = "shop" if bank.recipe == "Django" else "web"
    bank.run("-m", "celery", "-A", app, "lanes", "outbox", "--once")
