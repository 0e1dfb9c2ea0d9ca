"""Ends what was started when its starter is killed, where the kernel can do that (Linux).

Promises SIGTERM for the started process, also after a kill of the starter. Does nothing elsewhere: there, who kills the
sandbox has to end its parts.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable

_SET_SIGNAL_AT_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG


def bound() -> Callable[[], None] | None:
    """To be run in the new process before its program; it allocates nothing. None: the kernel cannot do that.

    The kernel takes the end of the thread that starts the process for its starter's.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(_SET_SIGNAL_AT_PARENTS_DEATH, signal.SIGTERM)

    return bind
