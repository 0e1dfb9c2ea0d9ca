"""The Django app. It shows Celery's current app: the one that the project's package imports, as Celery's guide says."""

from __future__ import annotations

from django.apps import AppConfig


class LanesConfig(AppConfig):
    name = "celery_lanes.django"
    label = "celery_lanes"
    verbose_name = "Celery"
