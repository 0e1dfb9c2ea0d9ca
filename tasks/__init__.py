"""`celery -A tasks …` from a clone. The code is in the package chatlanes; elsewhere use `celery -A chatlanes …`."""

from typing import Any


def __getattr__(name: str) -> Any:
    """The Celery app is made when it is first asked for."""
    if name == "app":
        from chatlanes.tasks.app import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
