"""The outcome of a call that ran on another thread: its result, or the error that it raised.

Guarantees that a raised error is not kept. Subclasses implement the waiting.
"""

from __future__ import annotations

from typing import Any


class Returned:
    """A subclass sets `_result` or `_error`."""

    def __init__(self) -> None:
        self._result: Any = None
        self._error: BaseException | None = None

    def outcome(self) -> Any:
        """The result; raises the error."""
        try:
            if self._error is not None:
                raise self._error
            return self._result
        finally:
            self._error = None  # its traceback refers to this object
