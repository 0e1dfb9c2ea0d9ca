"""The outbox: a transaction and its tasks are one, whatever dies, in order per key, once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, Signature, chain
from celery.exceptions import SoftTimeLimitExceeded
from click import ClickException
from click.testing import CliRunner
from kombu import Queue
from sqlalchemy import Engine, MetaData, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import celery_lanes as lanes
from celery_lanes import outbox as core
from celery_lanes.cli import lanes as commands
from celery_lanes.cli.run import run
from celery_lanes.embedded_server import Server
from celery_lanes.protocol import connect, keys
from celery_lanes.sqlalchemy import Outbox
from tests.lanes.web.shop import Shop, shop
from tests.support.databases import Database, Databases
from tests.support.process import Process
from tests.support.waiting import until

# -- SQLAlchemy, in this process


class Bank:
    """`charge` is a task in lanes, `outbox` is in a file of SQLite."""

    def __init__(self, broker: str, engine: Engine) -> None:
        self.app = Celery("bank", broker=broker, set_as_current=False)
        lanes.install(self.app)
        self.app.conf.task_queues = [Queue("celery"), Queue("paid", queue_arguments=lanes.QUEUE_ARGUMENTS)]
        self.engine, metadata = engine, MetaData()
        self.outbox = Outbox(self.app, engine, metadata)
        metadata.create_all(engine)
        self.charge = self._task("charge", lane="customer:{customer}")

    def _task(self, name: str, **options: Any) -> Any:
        @self.app.task(name=name, shared=False, **options)
        def task(customer: int, total: int = 0) -> None: ...

        return task

    def add(self, session: Any, *totals: int) -> list[str]:
        """The ids of charges of the customer 9."""
        return [self.outbox.add(self.charge.s(9, total=total), session).id for total in totals]

    @property
    def published(self) -> list[str]:
        """The ids in the lane of the customer, the oldest first."""
        return [each.decode() for each in self.app.lanes.store.client.zrange(keys.lane("customer:9"), 0, -1)]

    @property
    def waiting(self) -> int:
        return len(self.outbox.oldest(1000))


@pytest.fixture
def bank(redis_url: str, tmp_path: Path) -> Iterator[Bank]:
    engine = create_engine(f"sqlite:///{tmp_path}/bank.db")
    made = Bank(redis_url, engine)
    yield made
    core.tables.remove(made.outbox)
    engine.dispose()
    made.app.lanes.store.client.close()
    made.app.close()


def test_a_commit_publishes_in_the_order_of_the_calls(bank: Bank) -> None:
    with Session(bank.engine) as session:
        ids = bank.add(session, 1, 2, 3)
        assert (bank.published, bank.waiting) == ([], 0)
        session.commit()
        assert (bank.published, bank.waiting) == (ids, 0)
        ids += bank.add(session, 4)
        session.commit()
        assert bank.published == ids


def test_a_rollback_publishes_nothing(bank: Bank) -> None:
    with Session(bank.engine) as session:
        bank.add(session, 1)
        session.rollback()
        kept = bank.add(session, 2)
        with session.begin_nested() as savepoint:
            bank.add(session, 3)
            savepoint.rollback()
        with session.begin_nested():
            kept += bank.add(session, 4)
        session.commit()
    assert (bank.published, bank.waiting) == (kept, 0)


def test_scoped_sessions_and_those_of_coroutines(bank: Bank, tmp_path: Path) -> None:
    scoped = scoped_session(sessionmaker(bank.engine))
    ids = bank.add(scoped, 1)
    scoped.commit()
    scoped.remove()

    async def main() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank.db")
        async with AsyncSession(engine) as session:
            bank.add(session, 2)
            await session.rollback()
            ids.extend(bank.add(session, 3))
            await session.commit()
        await engine.dispose()

    asyncio.run(main())
    assert (bank.published, bank.waiting) == (ids, 0)
    with pytest.raises(lanes.PublishRefused, match="is not a session: pass a Session"):
        bank.add(sessionmaker(), 4)


def test_while_redis_is_away_a_commit_succeeds(bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    away = Celery("away", broker="redis://127.0.0.1:1/0", set_as_current=False)
    lanes.install(away)
    with Session(bank.engine) as session:
        with monkeypatch.context() as patched:
            ids = bank.add(session, 1)
            patched.setattr(bank.outbox, "app", away)
            session.commit()
        entry, record = [record for record in caplog.records if record.name == core.__name__]
        assert entry.message.startswith("lanes: entry 1 of the outbox has ended this pass: ")
        assert record.message.startswith("lanes: the outbox is not published yet; the committed tasks wait")
        assert (bank.published, bank.waiting) == ([], 1)
        # The next commit publishes it first
        ids += bank.add(session, 2)
        session.commit()
    assert (bank.published, bank.waiting) == (ids, 0)
    away.close()


def test_an_entry_that_was_published_and_not_deleted_is_dropped(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(bank.engine) as session:
        with monkeypatch.context() as patched:
            patched.setattr(bank.outbox, "delete", lambda numbers: None)
            ids = bank.add(session, 1, 2)
            session.commit()
        assert (bank.published, bank.waiting) == (ids, 2)
        bank.app.lanes.store.purge("paid")
        for id_ in ids:
            bank.app.lanes.store.drop(id_)
        # When they have run and are gone
        assert core.publish(bank.outbox) == 2
    assert (bank.published, bank.waiting) == ([], 0)
    assert bank.app.lanes.store.client.hget(keys.COUNTS, "appended") == b"2"


def test_mistakes_are_raised_in_the_transaction(bank: Bank) -> None:
    plain, ordered = bank._task("plain"), bank._task("ordered", lane=[])
    pool, group = {"queue": "celery"}, lanes.debounce("sync", 1)
    limited = bank._task("limited", lane=lanes.limit("customer:{customer}", concurrency=3))
    wrong = [
        (chain(bank.charge.s(9), bank.charge.si(9)), "takes one task"),
        ("charge", "takes one task"),
        (plain.s(9), r"plain has no lane, so Redis could not drop a second copy of it: give it one"),
        (bank.charge.s(None), "needs it"),
        (bank.charge.s(9).set(**pool), "'celery' is an ordinary queue"),
        (bank.charge.s(9, total=object()), "an outbox stores JSON, and charge has something else"),
        (bank.charge.s(9).set(headers={"note": "\ud800"}), "charge has something else: str is not valid UTF-8"),
        (bank.charge.s(9).set(countdown=5, headers=lanes.headers(group=group)), "of a group cannot have an eta"),
        (bank.charge.s(9).set(countdown=5, headers=lanes.headers(stops=True)), "stops=True cannot have an eta"),
        (limited.s(9).set(headers=lanes.headers(group=group)), "cannot have a lane with a rate or a limit"),
        (bank.charge.s(9).set(eta="tomorrow"), "'tomorrow' is not a time"),
    ]
    with Session(bank.engine) as session:
        for signature, sentence in wrong:
            with pytest.raises(lanes.PublishRefused, match=sentence):
                bank.outbox.add(signature, session)
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            bank.outbox.add(ordered.s(), session)
        with pytest.raises(OverflowError):
            bank.outbox.add(ordered.s(9).set(countdown=float("inf")), session)
        id_ = bank.outbox.add(ordered.s(9), session).id
        session.commit()
    assert bank.waiting == 0
    assert bank.app.lanes.store.client.exists(keys.message(id_))


def test_a_task_of_another_app_is_refused(bank: Bank) -> None:
    """It would be published to the broker of this one, whose workers do not know it."""
    other = Celery("other", broker="redis://127.0.0.1:1/0", set_as_current=False)
    lanes.install(other)

    @other.task(name="mail", lane="customer:{customer}", shared=False)
    def mail(customer: int) -> None: ...

    with (
        Session(bank.engine) as session,
        pytest.raises(lanes.PublishRefused, match=r"mail is a task of the app 'other', and .* app 'bank'"),
    ):
        bank.outbox.add(mail.s(9), session)
    other.close()


#: An entry, as the releases before this one have stored it.
STORED = """
{"task": "charge", "args": [9], "kwargs": {"total": 1},
 "options": {"headers": {"lane_keys": ["customer:9"], "once": ["outbox 0123", 7]}, "task_id": "the first"},
 "subtask_type": null, "immutable": false}
"""


def test_entries_of_older_releases_are_published(bank: Bank) -> None:
    with Session(bank.engine) as session:
        session.execute(text("INSERT INTO celery_lanes_outbox (message) VALUES (:message)"), {"message": STORED})
        session.commit()
    [message] = [json.loads(message) for _, message in bank.outbox.oldest(1)]
    assert core.publish(bank.outbox) == 1
    assert (bank.published, bank.waiting) == (["the first"], 0)
    # And this release stores the same
    _, now = core.entry_of(bank.charge.s(9, total=1), bank.outbox)
    of_process = {"once": json.loads(now)["options"]["headers"]["once"], "lane_keys": ["customer:9"]}
    options = {"headers": of_process, "task_id": json.loads(now)["options"]["task_id"]}
    assert json.loads(now) == {**message, "options": options}


def test_an_entry_that_cannot_be_published_keeps_no_other_waiting(bank: Bank, caplog: Any) -> None:
    with Session(bank.engine) as session:
        session.execute(text("INSERT INTO celery_lanes_outbox (message) VALUES ('{}')"))
        ids = bank.add(session, 1)
        session.commit()
        assert (bank.published, bank.waiting, bank.outbox.count_failed()) == (ids, 0, 1)
        [error] = session.execute(text("SELECT error FROM celery_lanes_outbox")).scalars()
    assert error.startswith("KeyError")
    assert "lanes: entry 1 of the outbox is left there, because it cannot be published" in caplog.text


def test_an_option_that_only_publishing_refuses_is_an_error_of_its_entry(bank: Bank) -> None:
    # Given an entry with a compression that is not installed, whose name not every database can store
    with Session(bank.engine) as session:
        bank.outbox.add(bank.charge.s(9, total=1).set(compression="\U0001f389"), session)
        ids = bank.add(session, 1)
        session.commit()
        # Then the others are published, and it has an error in ASCII
        assert (bank.published, bank.waiting) == (ids, 0)
        [error] = session.execute(text("SELECT error FROM celery_lanes_outbox")).scalars()
    assert error == "KeyError: '\\U0001f389'"


def test_while_the_results_are_away_the_entries_wait_in_order(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery asks the result backend before it publishes, and raises a RuntimeError."""
    away = Celery("away", broker=bank.app.conf.broker_url, backend="redis://127.0.0.1:1/0", set_as_current=False)
    away.conf.result_backend_transport_options = {"retry_policy": {"max_retries": 1, "interval_start": 0}}
    lanes.install(away)
    away.task(name="charge", lane="customer:{customer}", shared=False)(lambda customer, total=0: None)
    with Session(bank.engine) as session:
        with monkeypatch.context() as patched:
            ids = bank.add(session, 1, 2)
            patched.setattr(bank.outbox, "app", away)
            session.commit()
            with pytest.raises(RuntimeError, match="the Celery result store"):
                core.publish(bank.outbox)
        assert (bank.published, bank.waiting, bank.outbox.count_failed()) == ([], 2, 0)
        ids += bank.add(session, 3)
        session.commit()
    assert (bank.published, bank.waiting) == (ids, 0)
    away.close()


def test_a_soft_limit_reaches_the_task_and_leaves_the_entry(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(signature: Any) -> None:
        raise SoftTimeLimitExceeded

    with Session(bank.engine) as session, monkeypatch.context() as patched:
        ids = bank.add(session, 1)
        patched.setattr(Signature, "apply_async", late)
        with pytest.raises(SoftTimeLimitExceeded):
            session.commit()
    assert (bank.waiting, bank.outbox.count_failed()) == (1, 0)
    assert core.publish(bank.outbox) == 1
    assert (bank.published, bank.waiting) == (ids, 0)


def test_in_eager_mode_the_error_of_a_task_is_raised_as_by_delay(bank: Bank) -> None:
    bank.app.conf.update(task_always_eager=True, task_eager_propagates=True)

    @bank.app.task(name="wrong", lane="customer:{customer}", shared=False)
    def wrong(customer: int) -> None:
        raise RuntimeError("the task is wrong")

    with Session(bank.engine) as session:
        bank.outbox.add(wrong.s(9), session)
        with pytest.raises(RuntimeError, match="the task is wrong"):
            session.commit()
    assert (bank.waiting, bank.outbox.count_failed()) == (0, 0)


def said_by_check(bank: Bank) -> str:
    ran = CliRunner().invoke(commands, ["check"], obj=SimpleNamespace(app=bank.app))
    [said] = [line for line in ran.output.splitlines() if " outbox: " in line]
    return said


def test_the_command_publishes_what_is_left(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(bank.engine) as session:
        with monkeypatch.context() as patched:
            patched.setattr(core, "publish", lambda table: 0)
            ids = bank.add(session, *range(core.MOST + 1))
            session.commit()
        assert (bank.published, bank.waiting) == ([], len(ids))
        assert run(bank.app, "outbox", "--once") == []
        assert said_by_check(bank) == "ok    outbox: none of its entries has failed"
        assert (bank.published, bank.waiting) == (ids, 0)
        session.execute(text("INSERT INTO celery_lanes_outbox (message) VALUES ('{}')"))
        session.commit()
    with pytest.raises(ClickException, match="entries of the outbox that cannot be published: 1; their column error"):
        run(bank.app, "outbox", "--once")
    assert said_by_check(bank) == "WRONG outbox: 1 of its entries cannot be published: their column error says why"
    with monkeypatch.context() as patched:
        patched.setattr(bank.outbox, "_engine", create_engine("sqlite:////nowhere/bank.db"))
        assert "unable to open database file" in said_by_check(bank)
        with pytest.raises(ClickException, match=r"the outbox cannot be published now: .*unable to open database file"):
            run(bank.app, "outbox", "--once")
    monkeypatch.setattr("celery_lanes.cli.outbox.tables", [])
    with pytest.raises(ClickException, match="this app has no outbox"):
        run(bank.app, "outbox", "--once")


def test_a_once_of_the_user_counts(bank: Bank) -> None:
    headers = lanes.headers(once=("order", 17))
    with Session(bank.engine) as session:
        ids = [bank.outbox.add(bank.charge.s(9).set(headers=headers), session).id for _ in range(2)]
        session.commit()
    assert ids[0] == ids[1]
    assert (bank.published, bank.waiting) == (ids[:1], 0)


def test_an_eta_waits_in_redis(bank: Bank) -> None:
    with Session(bank.engine) as session:
        id_ = bank.outbox.add(bank.charge.s(9).set(countdown=3600), session).id
        session.commit()
    [timer] = bank.app.lanes.store.next_timers(0, 10)
    assert (timer.id, bank.waiting) == (id_, 0)


# -- Django, with processes that die

SETTINGS = """
INSTALLED_APPS += ["celery_lanes.django", "celery_lanes.django.outbox"]
DATABASES = {{"default": {database}}}
import pymysql
pymysql.install_as_MySQLdb()
"""
BEGIN = """
import os, signal, sys
from celery_lanes import headers, outbox as core
from celery_lanes.django import outbox
from django.db import connection, transaction
from shop.tasks import charge

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def add(number):
    order = charge.s({"customer": 9, "number": number})
    return outbox.add(order.set(queue="orders", headers=headers(["customer:9"])))
"""
DIES_AFTER_THE_COMMIT = """
core.publish = die
with transaction.atomic():
    add(1)
    add(2)
"""
DIES_AFTER_THE_PUBLISH = """
core.tables[0].delete = die
with transaction.atomic():
    add(3)
"""
ROLLS_BACK = """
try:
    with transaction.atomic():
        add(0)
        raise ValueError
except ValueError:
    pass
with transaction.atomic():
    try:
        with transaction.atomic():
            add(0)
            raise ValueError
    except ValueError:
        pass
    add(4)
    add(5)
    passes, publish = [], core.publish
    core.publish = lambda table: passes.append(publish(table))
assert len(passes) == 1
"""
#: Not committed, so that the hooks stay registered.
IN_A_TEST = """
from celery_lanes.django.outbox.models import Entry
from django.test import TestCase

with transaction.atomic():
    add(7)
    for number in (8, 9):
        with TestCase.captureOnCommitCallbacks(execute=True):
            add(number)
            add(-number)
        assert not Entry.objects.exists(), number
    transaction.set_rollback(True)
"""
OUTSIDE = """
from celery_lanes import PublishRefused
try:
    add(6)
except PublishRefused as error:
    print(error)
"""
#: Each order has the next number of the customer, by the lock of the row. Dies sooner or later, mostly.
ORDERS = """
import random
chance, publish_one = random.Random({seed}), core._publish_one

def publish_or_die(*entry):
    if chance.random() < 0.04:
        die()
    published = publish_one(*entry)
    if chance.random() < 0.04:
        die()
    return published

core._publish_one = publish_or_die
for _ in range(30):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("UPDATE account SET number = number + 1")
            cursor.execute("SELECT number FROM account")
            [number] = cursor.fetchone()
        add(number)
"""


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    with Databases() as made:
        yield made


class Orders(Shop):
    database: Database

    def begin(self, code: str) -> Process:
        words = ("manage", "shell", "--no-imports", "-c", BEGIN + code)
        return self.start(f"shell{len(self._running)}", *words, until="")

    def do(self, code: str, ends: int = 0) -> str:
        process = self.begin(code)
        assert process.exit_code() == ends, process.log
        return process.log

    def query(self, statement: str) -> Any:
        with closing(self.database.connect()) as database:
            cursor = database.cursor()
            cursor.execute(statement)
            found = cursor.fetchone() if statement.startswith("SELECT") else None
            database.commit()
        return found and found[0]

    @property
    def waiting(self) -> int:
        return int(self.query("SELECT count(*) FROM celery_lanes_outbox_entry"))


@pytest.fixture
def orders(request: pytest.FixtureRequest, databases: Databases, server: Server, tmp_path: Path) -> Iterator[Orders]:
    with connect(server.url) as client:
        client.flushall()
    database = databases.make(getattr(request, "param", "sqlite"), tmp_path)
    with shop(tmp_path, server.url, SETTINGS.format(database=database.of_django)) as made:
        made.__class__ = Orders
        assert isinstance(made, Orders)
        made.database = database
        yield made


@pytest.mark.slow
def test_what_a_dead_process_leaves_is_published_once_and_in_order(orders: Orders) -> None:
    assert "No changes detected" in orders.run("manage", "makemigrations", "--check", "--dry-run")
    # Given a process that died between its commit and the publish, and one between the publish and the delete
    orders.do(DIES_AFTER_THE_COMMIT, ends=-signal.SIGKILL)
    assert (orders.waiting, orders.app.lanes.store.pending()) == (2, 0)
    orders.do(DIES_AFTER_THE_PUBLISH, ends=-signal.SIGKILL)
    assert (orders.waiting, orders.app.lanes.store.pending()) == (3, 3)
    # When the tasks have run, and the next transaction commits
    orders.worker()
    until(lambda: orders.charged == ["9 1", "9 2", "9 3"] and orders.app.lanes.store.pending() == 0)
    orders.do(ROLLS_BACK)
    # Then each committed task has run once, and those that were rolled back have not
    until(lambda: orders.charged == ["9 1", "9 2", "9 3", "9 4", "9 5"])
    assert orders.waiting == 0
    orders.do(IN_A_TEST)
    until(lambda: orders.charged[5:] == ["9 7", "9 8", "9 -8", "9 9", "9 -9"])
    assert "outbox.add needs a transaction of the database 'default'" in orders.do(OUTSIDE)
    # And a relay publishes what the last process has left
    orders.do(DIES_AFTER_THE_COMMIT, ends=-signal.SIGKILL)
    relay = orders.start("relay", "celery", "-A", "shop", "lanes", "outbox", until="")
    until(lambda: orders.charged[10:] == ["9 1", "9 2"] and orders.waiting == 0)
    relay.kill_all()
    assert orders.app.lanes.store.client.hget(keys.COUNTS, "appended") == b"12"


@pytest.mark.slow
@pytest.mark.parametrize(
    "orders",
    ["sqlite", *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("postgresql", "mysql"))],
    indirect=True,
)
def test_processes_that_die_publish_each_task_once_and_in_order(orders: Orders) -> None:
    orders.query("CREATE TABLE account (number INTEGER)")
    orders.query("INSERT INTO account VALUES (0)")
    orders.worker()
    # When processes take turns, and die between commit, publish and delete
    ends = []
    for first in (0, 3):
        running = [orders.begin(ORDERS.format(seed=seed)) for seed in range(first, first + 3)]
        for process in running:
            ends.append(process.exit_code())
            assert ends[-1] in (0, -signal.SIGKILL), process.log
    assert -signal.SIGKILL in ends
    orders.run("manage", "lanes", "outbox", "--once")
    # Then every committed order has run once, in the order of the commits
    last = orders.query("SELECT number FROM account")
    assert last > 0
    until(lambda: orders.app.lanes.store.pending() == 0)
    assert orders.charged == [f"9 {number}" for number in range(1, last + 1)]
    assert orders.waiting == 0
