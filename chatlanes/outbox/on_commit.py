"""`send_on_commit`: a call of the outbox that is appended when a transaction of the caller's database is committed.

Guarantees that a transaction, or a savepoint, that is rolled back sends nothing. A process that dies between the commit
and the append does not send the call: docs/outbox.md says how a table closes this gap.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from chatlanes.outbox.call import OutboxCall, SendError, call_of, settings_for
from chatlanes.outbox.sending import outbox

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction

#: The key of a session's calls in its `info`.
_CALLS = "chatlanes.outbox"
#: In place of the transaction of a call, when that is committed.
_COMMITTED = object()


def send_on_commit(
    chat_id: int,
    method: str,
    *,
    session: Any = None,
    using: str | None = None,
    once: str | None = None,
    bot: str | None = None,
    **params: Any,
) -> str:
    """Like `send`, when the transaction is committed. Checks the call now, and returns its id.

    Args:
        chat_id: As for `send`.
        method: As for `send`.
        session: A `Session` or `AsyncSession` of SQLAlchemy. Without it, the transaction is Django's; outside of one,
            the call is sent at once.
        using: The name of Django's database, if it is not the default one.
        once: As for `send`.
        bot: As for `send`.
        params: As for `send`.

    Raises:
        SendError: The call cannot be sent as it is; the message says what to do.
        SettingsError: A setting of this process is wrong.

    The append after the commit raises the same as `send`. Then the transaction is committed and the call is not sent.
    """
    call = call_of(settings_for(bot, outbox().settings), chat_id, method, once, params)
    if session is None:
        _after_commit_of_django(call, using)
    else:
        _after_commit_of_session(call, session)
    return call.id


def _after_commit_of_django(call: OutboxCall, using: str | None) -> None:
    try:
        from django.db import transaction
    except ImportError:
        raise SendError(
            "send_on_commit found no Django: pass session= with a session of SQLAlchemy, or use chatlanes.send"
        ) from None
    transaction.on_commit(partial(outbox().append, call), using=using)


def _after_commit_of_session(call: OutboxCall, session: Any) -> None:
    """Each call waits in the session, with the transaction or savepoint that it belongs to."""
    found = _session_of(session)
    if _CALLS not in found.info:
        from sqlalchemy import event

        found.info[_CALLS] = []
        event.listen(found, "after_commit", _committed)
        event.listen(found, "after_transaction_end", _ended)
    if not found.in_transaction():
        found.begin()  # as at the first statement of a session
    found.info[_CALLS].append((_innermost(found), call))


def _committed(session: Session) -> None:
    """Called in the commit, before the transaction has ended. The calls of a savepoint go to the one around it."""
    committed = _innermost(session)
    owner = _COMMITTED if committed is None or committed.parent is None else committed.parent
    calls = session.info[_CALLS]
    session.info[_CALLS] = [(owner if of is committed else of, call) for of, call in calls]


def _ended(session: Session, transaction: SessionTransaction) -> None:
    """Whatever has ended it: a call that its commit has not taken is dropped with it. Sends the committed calls only
    now, because the session can be used again if that fails.
    """
    calls = [(of, call) for of, call in session.info[_CALLS] if of is not transaction]
    session.info[_CALLS] = [(of, call) for of, call in calls if of is not _COMMITTED]
    for of, call in calls:
        if of is _COMMITTED:
            _append(call)


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _append(call: OutboxCall) -> None:
    """In the commit of an AsyncSession, the event loop continues meanwhile."""
    from sqlalchemy.util import await_only
    from sqlalchemy.util.concurrency import in_greenlet

    if in_greenlet():
        await_only(asyncio.to_thread(outbox().append, call))
    else:
        outbox().append(call)


def _session_of(session: Any) -> Session:
    try:
        from sqlalchemy.ext.asyncio import async_scoped_session
        from sqlalchemy.orm import Session, scoped_session
    except ImportError:
        raise SendError("session= is for SQLAlchemy, which is not installed here") from None
    if isinstance(session, scoped_session | async_scoped_session):
        session = session()
    found = getattr(session, "sync_session", session)
    if not isinstance(found, Session):
        raise SendError(f"session={session!r:.80}: pass a Session or an AsyncSession of SQLAlchemy")
    return found
