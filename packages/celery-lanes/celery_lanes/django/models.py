"""A model without a table. Django needs it for the permissions `view_lane` and `change_lane` and for log entries."""

from __future__ import annotations

from typing import Any

from django.db import models


class _NoRows(models.Manager):
    """No query reaches the database, not even that of `dumpdata`."""

    def get_queryset(self) -> Any:
        return super().get_queryset().none()


class Lane(models.Model):
    """`key`: the target of the action: a lane, a queue, a group, or ids."""

    key = models.TextField(primary_key=True)

    objects = _NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return str(self.key)
