"""The outbox: tasks that wait in a table of the app's own database, so that a transaction and its task are one.

Guarantees that a task which was added in a transaction is published if this is committed, and only then: once, after
those of its keys that were added before it, even if processes die between the commit, the publish and the delete.
Redis remembers published ids for 48 h: an entry that was published and not deleted may not be left for longer.
celery_lanes.django.outbox and celery_lanes.sqlalchemy have the tables.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any
from uuid import uuid4

from celery import Celery, Signature
from celery.exceptions import SoftTimeLimitExceeded
from kombu.exceptions import OperationalError, SerializationError
from kombu.utils import json

from celery_lanes.errors import PublishRefused
from celery_lanes.protocol import envelope
from celery_lanes.transport.publish import check_ordinary, due_ms, id_of, row
from celery_lanes.transport.routing import is_lane_queue

logger = logging.getLogger(__name__)

#: Entries that are read at once. A commit publishes no more than these, so that it does not wait for a long backlog.
MOST = 100
#: What is wrong with an entry. Any other error ends the pass: it may come from a server that is away, for messages or
#: for results, or from a limit of the task that has committed, and the next pass may succeed.
_OF_ENTRY = (
    *(PublishRefused, SerializationError, TypeError, ValueError),
    *(LookupError, ArithmeticError, AttributeError, AssertionError),
)


class Table(ABC):
    """The entries of an outbox. Ids grow in the order in which they were added, and are never used again."""

    app: Celery

    @abstractmethod
    def oldest(self, most: int) -> Sequence[tuple[int, str]]:
        """(id, message) of committed entries without an error, in the order of their ids."""

    @abstractmethod
    def delete(self, numbers: Sequence[int]) -> None: ...

    @abstractmethod
    def fail(self, number: int, error: str) -> None:
        """Note an error. The entry is kept until an operator corrects it, and delays no other one."""

    @abstractmethod
    def count_failed(self) -> int: ...

    def refresh(self) -> None:  # noqa: B027 - most need nothing
        """Called before each pass of a process that runs on: replaces connections that were lost."""


#: The outboxes of this process, for `lanes outbox`.
tables: list[Table] = []


def entry_of(signature: Any, table: Table) -> tuple[Any, str]:
    """(AsyncResult, message) of a task that is to be added to the outbox. Its keys, and the id that keeps it from being
    published twice, are made now. Raises PublishRefused, and what Celery would raise, such as TypeError for wrong
    arguments.
    """
    if not isinstance(signature, Signature) or signature.subtask_type:
        raise PublishRefused(
            "an outbox takes one task, such as charge.s(9, total=20): let a task publish the chain, group or chord"
        )
    app, options = signature.app, dict(signature.options)
    if app != table.app:
        raise PublishRefused(
            f"{signature.task} is a task of the app {app.main!r}, and this outbox publishes through the app "
            f"{table.app.main!r}: that of Outbox(app, …), or in Django Celery's current app"
        )
    headers = {**_headers(app, signature, options)}
    if headers.get(envelope.ONCE) is None:
        scope, numbers = _numbers(os.getpid())
        headers[envelope.ONCE] = [scope, next(numbers)]
    task_id = options.get("task_id") or id_of(headers)
    stored = {**signature, "options": {**options, "headers": headers, "task_id": task_id}}
    times = {name: options.get(name) for name in ("countdown", "eta", "expires")}
    made = app.amqp.as_task_v2(task_id, signature.task, signature.args, signature.kwargs, **times)
    message = {"headers": {**made.headers, **headers}, "properties": made.properties, "body": ""}
    due_ms(message)
    try:
        row("", message)
        return app.AsyncResult(task_id), json.dumps(stored)
    except PublishRefused:
        raise
    except (TypeError, ValueError) as error:
        raise PublishRefused(f"an outbox stores JSON, and {signature.task} has something else: {error}") from error


def _headers(app: Celery, signature: Signature, options: dict[str, Any]) -> dict[str, Any]:
    """The headers that the message would have if it was published now. Raises as publishing it would."""
    task = app.tasks.get(signature.task)
    if task is not None and task.typing:
        task.__header__(*signature.args, **signature.kwargs)
    queue = {"queue": task.queue} if getattr(task, "queue", None) else {}
    routed = app.amqp.router.route({**queue, **options}, signature.task, signature.args, signature.kwargs, task)
    headers: dict[str, Any] = routed.get("headers") or {}
    if headers.get(envelope.LANE_KEYS) is None:
        raise PublishRefused(
            f"{signature.task} has no lane, so Redis could not drop a second copy of it: give it one "
            "(@app.task(lane=…)); lane=[] is a lane without order"
        )
    named = routed.get("queue")
    if named is not None and not is_lane_queue(named):
        check_ordinary(named.name, {"headers": headers})
    return headers


@lru_cache(maxsize=1)
def _numbers(_pid: int) -> tuple[str, count[int]]:
    """The scope and the numbers of this process. Those of a table would come again after it was restored or reset, and
    Redis would drop new tasks as seen.
    """
    return f"outbox {uuid4().hex}", count()


def publish(table: Table) -> int:
    """Publish the oldest entries, at most MOST; how many there were. Raises if Redis or the database is away.

    Any number of processes may do so at the same time. Each publishes all that was committed before an entry and is
    still there, and then the entry; Redis drops what another one has published. So the order of a key holds.
    """
    entries, published = table.oldest(MOST), list[int]()
    try:
        for number, message in entries:
            if _publish_one(table, number, message):
                published.append(number)
    finally:
        if published:  # a process that dies before leaves them to be published again, and dropped as seen
            table.delete(published)
    return len(entries)


def _publish_one(table: Table, number: int, message: str) -> bool:
    is_eager = False
    try:
        signature = Signature.from_dict(json.loads(message), app=table.app)
        is_eager = table.app.conf.task_always_eager and signature.task in table.app.tasks
        signature.apply_async()
    except Exception as raised:
        if is_eager:  # with task_eager_propagates: the task has run, and has raised it
            table.delete([number])
            raise
        error = _own_error(raised)
        if error is None:
            logger.warning("lanes: entry %s of the outbox has ended this pass: %s", number, raised)
            raise
        text = f"{type(error).__name__}: {error}"
        table.fail(number, text.encode("ascii", "backslashreplace").decode())  # a database may not have every character
        logger.error("lanes: entry %s of the outbox is left there, because it cannot be published: %s", number, error)
        return False
    return True


def _own_error(raised: Exception) -> Exception | None:
    """The error, if it is the entry's own; otherwise None. kombu takes a KeyError for a lost connection; here it is
    that of an option, such as a compression that is not installed.
    """
    error = raised.__cause__ if isinstance(raised, OperationalError) else raised
    return error if isinstance(error, _OF_ENTRY) and not isinstance(error, OSError) else None


def publish_committed(table: Table) -> None:
    """Called after a commit, which succeeded whatever happens here. Raises SoftTimeLimitExceeded, and in eager mode
    what the task raises.
    """
    try:
        publish(table)
    except Exception as error:
        if isinstance(error, SoftTimeLimitExceeded) or table.app.conf.task_always_eager:
            raise
        logger.warning("lanes: the outbox is not published yet; the committed tasks wait in its table: %s", error)
