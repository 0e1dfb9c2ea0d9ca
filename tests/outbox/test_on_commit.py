"""A call is sent when the transaction of its caller is committed, and only then."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import chatlanes
from celery_lanes.protocol import keys
from chatlanes.outbox import Outbox, SendError
from tests.support import ROOT
from tests.support.outside import outside
from tests.support.pipeline import TOKEN

PENDING = keys.pending("updates")


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        yield session
    engine.dispose()


def send(session: object, once: str = "a") -> str:
    return chatlanes.send_on_commit(7, "sendMessage", session=session, once=once, text="hi")


def waiting(redis: Redis) -> list[str]:
    """The ids of the calls that were appended, in their order."""
    return [each.decode() for each in redis.zrange(PENDING, 0, -1)]


def test_commit_sends_in_the_order_of_the_calls(here: Outbox, redis: Redis, session: Session) -> None:
    session.execute(text("select 1"))
    ids = [send(session, once) for once in "abc"]
    assert waiting(redis) == []
    session.commit()
    assert waiting(redis) == ids
    # And the next transaction of this session sends its own calls only
    session.execute(text("select 1"))
    session.commit()
    ids.append(send(session, "d"))
    session.commit()
    assert waiting(redis) == ids
    assert redis.hget(keys.COUNTS, "appended") == b"4"


@pytest.mark.parametrize("end", [Session.rollback, Session.close, Session.reset])
def test_a_transaction_that_is_not_committed_sends_nothing(
    here: Outbox, redis: Redis, session: Session, end: object
) -> None:
    send(session)  # as the first step of a transaction
    assert callable(end)
    end(session)
    session.execute(text("select 1"))
    session.commit()
    assert waiting(redis) == []


def test_a_rolled_back_savepoint_sends_nothing(here: Outbox, redis: Redis, session: Session) -> None:
    before = send(session, "before")
    with session.begin_nested() as savepoint:
        send(session, "inside")
        with session.begin_nested():
            send(session, "released inside of it")
        savepoint.rollback()
    with session.begin_nested():
        kept = send(session, "kept")
        assert waiting(redis) == []
    assert waiting(redis) == []
    after = send(session, "after")
    session.commit()
    assert waiting(redis) == [before, kept, after]


def test_a_released_savepoint_is_rolled_back_with_its_transaction(here: Outbox, redis: Redis, session: Session) -> None:
    with session.begin_nested():
        send(session)
    session.rollback()
    session.commit()
    assert waiting(redis) == []


def test_commit_of_everything_sends_what_an_open_savepoint_has(here: Outbox, redis: Redis, session: Session) -> None:
    session.begin_nested()
    id_ = send(session)
    session.commit()
    session.commit()
    assert waiting(redis) == [id_]


def test_a_failed_append_is_raised_by_the_commit(
    here: Outbox, redis: Redis, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a table, and a Redis that does not answer
    session.execute(text("create table orders (id)"))
    session.commit()
    away = Outbox(here.settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
    monkeypatch.setattr("chatlanes.outbox.on_commit.outbox", lambda: away)
    # When a transaction is committed
    session.execute(text("insert into orders values (1)"))
    send(session)
    with pytest.raises(RedisConnectionError):
        session.commit()
    # Then the row is there, and the session continues without the call
    monkeypatch.undo()
    assert session.execute(text("select id from orders")).all() == [(1,)]
    session.commit()
    assert waiting(redis) == []


def test_a_scoped_session_is_that_of_its_scope(here: Outbox, redis: Redis) -> None:
    scoped = scoped_session(sessionmaker(create_engine("sqlite://")))
    id_ = send(scoped)
    scoped.commit()
    scoped.remove()
    assert waiting(redis) == [id_]


@pytest.mark.parametrize("is_scoped", [False, True])
def test_a_session_of_coroutines_sends_on_commit(here: Outbox, redis: Redis, is_scoped: bool) -> None:
    async def main() -> list[str]:
        engine = create_async_engine("sqlite+aiosqlite://")
        made = async_sessionmaker(engine)
        session = async_scoped_session(made, asyncio.current_task) if is_scoped else made()
        ids = [send(session, "kept")]
        await session.execute(text("select 1"))
        async with session.begin_nested() as savepoint:
            send(session, "undone")
            await savepoint.rollback()
        assert waiting(redis) == []
        await session.commit()
        send(session, "rolled back")
        await session.rollback()
        await session.close()
        await engine.dispose()
        return ids

    ids = asyncio.run(main())
    assert waiting(redis) == ids


def test_mistakes_are_told_before_the_commit(here: Outbox, session: Session) -> None:
    with pytest.raises(SendError, match="sendMessage needs text"):
        chatlanes.send_on_commit(7, "sendMessage", session=session)
    for wrong in (sessionmaker(), "a session", AsyncSession):
        with pytest.raises(SendError, match="pass a Session or an AsyncSession of SQLAlchemy"):
            send(wrong)


@pytest.mark.parametrize("missing", ["django", "sqlalchemy"])
def test_a_missing_package_is_told(here: Outbox, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    session, sentence = (
        (None, "send_on_commit found no Django: pass session=")
        if missing == "django"
        else (object(), "session= is for SQLAlchemy, which is not installed here")
    )
    with pytest.raises(SendError, match=sentence):
        send(session)


DJANGO = """
import django
from django.conf import settings

settings.configure(DATABASES={name: {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{name}.db"}
                              for name in ("default", "other")})
django.setup()

import chatlanes
from chatlanes.outbox import outbox
from django.db import connections, transaction


def send(once, **options):
    return chatlanes.send_on_commit(7, "sendMessage", once=once, text="hi", **options)


def waiting():
    with outbox()._connection() as appends:
        return [each.decode() for each in appends.store.client.zrange("lanes:pending:updates", 0, -1)]


with transaction.atomic():
    ids = [send("kept")]
    try:
        with transaction.atomic():
            send("savepoint")
            raise ValueError
    except ValueError:
        pass
    with transaction.atomic():
        ids.append(send("released savepoint"))
    assert waiting() == [], waiting()
assert waiting() == ids, waiting()

try:
    with transaction.atomic():
        send("rolled back")
        raise ValueError
except ValueError:
    pass
assert waiting() == ids, waiting()

with transaction.atomic(), transaction.atomic("other"):
    ids.append(send("other", using="other"))
    transaction.set_rollback(True)
assert waiting() == ids, waiting()

ids.append(send("outside of a transaction"))
assert waiting() == ids, waiting()

try:
    with transaction.atomic():
        chatlanes.send_on_commit(7, "sendMessage")
except chatlanes.SendError as error:
    print(error)
"""


def test_django_sends_on_commit(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", DJANGO],
        cwd=tmp_path,
        env={**outside(), "PYTHONPATH": str(ROOT), "REDIS_URL": redis_url, "BOT_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (0, "sendMessage needs text: pass it as a parameter\n"), ended.stderr
