"""Whether this worker was told to stop. A forked child is never told, and does not know."""

from celery.worker import state


def is_stopping() -> bool:
    return _is_asked(state.should_stop) or _is_asked(state.should_terminate)


def _is_asked(exit_code: int | bool | None) -> bool:
    """Celery asks for it with an exit code, which may be 0."""
    return exit_code is not None and exit_code is not False
