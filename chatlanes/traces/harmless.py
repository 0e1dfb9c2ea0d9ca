"""Prevents failures of tracing from changing the outcome of an update.

Guarantees that such a failure is logged once and not raised. A soft time limit, which may interrupt any code, is
raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from celery.exceptions import SoftTimeLimitExceeded

log = logging.getLogger("chatlanes")

P = ParamSpec("P")
T = TypeVar("T")

_logged: set[str] = set()


def harmless(instead: Any = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function so that it raises nothing, and returns this value when it fails."""

    def made(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def safe(*arguments: P.args, **named: P.kwargs) -> T:
            try:
                return function(*arguments, **named)
            except SoftTimeLimitExceeded:
                raise
            except Exception:
                if function.__qualname__ not in _logged:
                    _logged.add(function.__qualname__)
                    log.exception("traces: %s failed, and is left out; logged once", function.__qualname__)
                return instead

        return safe

    return made
