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
    result, message = entry_of(signature)
    database = router.db_for_write(Entry)
    connection = connections[database]
    if not connection.in_atomic_block:
        raise PublishRefused(
            f"outbox.add needs a transaction of the database {database!r}: call it in transaction.atomic(), together "
            "with the writes that the task belongs to"
        )
    Entry.objects.using(database).create(message=message)
    # One call for all entries of a transaction. Whatever rolls that call back rolls back this entry, too.
    if all(call is not _publish for _, call, *_ in connection.run_on_commit):
        transaction.on_commit(_publish, using=database)
    return result


def _publish() -> None:
    publish_committed(TABLE)
