"""The table of the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery import current_app
from django.db import close_old_connections, connections, models, router, transaction

from celery_lanes.errors import PublishRefused
from celery_lanes.outbox import Table, entry_of, publish_committed


class Entry(models.Model):
    """`message`: a signature, in Celery's JSON format. `error`: why it cannot be published; None: it waits."""

    id = models.BigAutoField(primary_key=True)
    message = models.TextField()
    error = models.TextField(null=True)

    class Meta:
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return str(self.id)


class DjangoTable(Table):
    @property
    def app(self) -> Any:
        return current_app._get_current_object()

    def oldest(self, most: int) -> Sequence[tuple[int, str]]:
        waiting = self._entries().filter(error=None).order_by("id")
        return list(waiting.values_list("id", "message")[:most])

    def delete(self, numbers: Sequence[int]) -> None:
        self._entries().filter(id__in=numbers).delete()

    def fail(self, number: int, error: str) -> None:
        self._entries().filter(id=number).update(error=error)

    def count_failed(self) -> int:
        return int(self._entries().exclude(error=None).count())

    def refresh(self) -> None:
        close_old_connections()

    @staticmethod
    def _entries() -> Any:
        return Entry.objects.using(router.db_for_write(Entry))


TABLE = DjangoTable()


def add_entry(signature: Any) -> Any:
    result, message = entry_of(signature, TABLE)
    database = router.db_for_write(Entry)
    connection = connections[database]
    if not connection.in_atomic_block:
        raise PublishRefused(
            f"outbox.add needs a transaction of the database {database!r}: call it in transaction.atomic(), together "
            "with the writes that the task belongs to"
        )
    Entry.objects.using(database).create(message=message)
    others = (call for _, call, *_ in reversed(connection.run_on_commit) if isinstance(call, _Publish))
    transaction.on_commit(_Publish(next(others, None)), using=database)
    return result


class _Publish:
    """Called after the commit, for each entry. The first call publishes those of all that were registered before it is
    made. `captureOnCommitCallbacks` of a TestCase makes the calls of each block by itself, and forgets none.
    """

    def __init__(self, other: _Publish | None) -> None:
        self._due: set[_Publish] = set() if other is None else other._due
        self._due.add(self)

    def __call__(self) -> None:
        if self in self._due:
            self._due.clear()
            publish_committed(TABLE)
