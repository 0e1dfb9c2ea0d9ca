"""Which process this is, without asking the system each time.

Promises the id of this very process, also in what Python forks, which all of Celery's pools do or start afresh.
"""

from __future__ import annotations

import os

_pid = os.getpid()


def pid() -> int:
    return _pid


def _after_fork() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)
