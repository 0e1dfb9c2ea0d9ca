"""The tasks of chatlanes: one for each Telegram update, in order per chat, on any number of workers.

`celery -A tasks worker` runs them. `tasks.lanes` is the ordered delivery itself and can be used by any Celery app;
importing it does not build ours, which `tasks.app` does when it is first asked for.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "app":
        from tasks.celery import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
