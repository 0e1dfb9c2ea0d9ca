"""Whether this worker was told to stop. A forked child is never told, and does not know."""

from celery.worker import state


def is_stopping() -> bool:
    return any(asked is not None and asked is not False for asked in (state.should_stop, state.should_terminate))
