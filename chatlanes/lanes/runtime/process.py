"""Which process this is, without asking the system each time.

Promises that `process.pid` is the id of this very process, also in what Python forks, which all of Celery's pools do
or start afresh. It changes then: ask for it here each time.
"""

from __future__ import annotations

import os

pid = os.getpid()


def _after_fork() -> None:
    global pid
    pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)
