"""The pid of this process, without a system call.

Guarantees that `process.pid` is correct after a fork by Python, as all pools of Celery do it. Do not copy it: it
changes at a fork.
"""

from __future__ import annotations

import os

pid = os.getpid()


def _after_fork() -> None:
    global pid
    pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)
