"""The outbox of an app with SQLAlchemy.

outbox = Outbox(app, engine, Base.metadata)

with Session(engine) as session, session.begin():
    session.add(Order(customer=9))
    outbox.add(charge.s(9, total=20), session)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from celery import Celery
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Text, delete, event, func, select, update
from sqlalchemy import Table as SQLTable
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.ext.asyncio import async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, registry, scoped_session
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from celery_lanes.errors import PublishRefused
from celery_lanes.outbox import Table, entry_of, publish_committed, tables

_TEXT = Text().with_variant(LONGTEXT(), "mysql", "mariadb")


class Outbox(Table):
    """Adds the table `celery_lanes_outbox` to `metadata`: `create_all` or a migration creates it.

    `engine` is a plain one, even if the sessions are those of coroutines: entries are published through it.
    """

    def __init__(self, app: Celery, engine: Engine, metadata: MetaData) -> None:
        self.app = app
        self._engine = engine
        self._table = SQLTable(
            "celery_lanes_outbox",
            metadata,
            Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
            Column("message", _TEXT, nullable=False),
            Column("error", _TEXT),
            sqlite_autoincrement=True,  # an id is never used again
        )
        self._entry: Any = type("Entry", (), {})
        registry(metadata=metadata).map_imperatively(self._entry, self._table)
        tables.append(self)

    def add(self, signature: Any, session: Any) -> Any:
        """Publish a task when the transaction of the session is committed. Returns its AsyncResult.

        The task must be in a lane; its keys are made now. It is published right after the commit, and by `lanes outbox`
        if the process dies before, or Redis does not answer. `session` is a Session, an AsyncSession, or a scoped one.
        Raises PublishRefused.
        """
        result, message = entry_of(signature, self)
        found = _session_of(session)
        entry = self._entry()
        entry.message = message
        found.add(entry)
        if self not in found.info:
            event.listen(found, "after_transaction_end", self._ended)
        found.info[self] = True
        return result

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        """After a rollback there is nothing of the session to publish. Looking costs less than to know."""
        if transaction.parent is not None or not session.info.get(self):
            return
        session.info[self] = False
        if in_greenlet():  # in an AsyncSession: the event loop continues meanwhile
            await_only(asyncio.to_thread(publish_committed, self))
        else:
            publish_committed(self)

    def oldest(self, most: int) -> Sequence[tuple[int, str]]:
        entries = self._table.c
        waiting = select(entries.id, entries.message).where(entries.error.is_(None)).order_by(entries.id).limit(most)
        with self._engine.connect() as connection:
            return [(number, message) for number, message in connection.execute(waiting)]

    def delete(self, numbers: Sequence[int]) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(self._table).where(self._table.c.id.in_(numbers)))

    def fail(self, number: int, error: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(update(self._table).where(self._table.c.id == number).values(error=error))

    def count_failed(self) -> int:
        failed = select(func.count()).select_from(self._table).where(self._table.c.error.is_not(None))
        with self._engine.connect() as connection:
            return connection.execute(failed).scalar_one()


def _session_of(session: Any) -> Session:
    if isinstance(session, scoped_session | async_scoped_session):
        session = session()
    found = getattr(session, "sync_session", session)
    if not isinstance(found, Session):
        raise PublishRefused(f"{session!r:.80} is not a session: pass a Session or an AsyncSession of SQLAlchemy")
    return found
