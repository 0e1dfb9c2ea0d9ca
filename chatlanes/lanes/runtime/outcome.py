"""What came of something that ran elsewhere: its result, or what it raised.

Promises that whoever waited for it gets the one or the other, and that nothing is kept of an error that was raised
again. Does not wait: that is of whoever derives from it.
"""

from __future__ import annotations

from typing import Any


class Returned:
    """Whoever runs it sets `_result` or `_error`."""

    def __init__(self) -> None:
        self._result: Any = None
        self._error: BaseException | None = None

    def outcome(self) -> Any:
        """Raises what it raised."""
        try:
            if self._error is not None:
                raise self._error
            return self._result
        finally:
            self._error = None  # whose traceback leads here again
