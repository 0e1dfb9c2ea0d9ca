"""Ends a process when the process that started it is killed. Linux only.

The kernel sends SIGTERM, so this holds after SIGKILL too. Does nothing on other systems.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable

_SET_SIGNAL_AT_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG


def terminate_with_parent() -> Callable[[], None] | None:
    """A function for the new process, called before its program; it allocates nothing. None: not supported here.

    The kernel sends the signal when the thread that started the process ends.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(_SET_SIGNAL_AT_PARENTS_DEATH, signal.SIGTERM)

    return bind
