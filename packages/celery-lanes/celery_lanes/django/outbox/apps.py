"""The Django app of the outbox."""

from __future__ import annotations

from django.apps import AppConfig

from celery_lanes.outbox import tables


class OutboxConfig(AppConfig):
    name = "celery_lanes.django.outbox"
    label = "celery_lanes_outbox"
    verbose_name = "Celery outbox"

    def ready(self) -> None:
        from celery_lanes.django.outbox.models import TABLE

        if TABLE not in tables:
            tables.append(TABLE)
