"""`celery -A tasks …` from a clone. The code is in the package chatlanes; elsewhere use `celery -A chatlanes …`."""

from typing import Any


def __getattr__(name: str) -> Any:
    """The Celery app, created on first use."""
    if name == "app":
        from chatlanes.settings.imports import warn_of_hidden_module
        from chatlanes.tasks.app import app

        warn_of_hidden_module("tasks")
        globals()[name] = app
        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
