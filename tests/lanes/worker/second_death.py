"""For a prefork worker (`-I`): its second child, which the test has stopped, begins its message and dies while the
first one is cleaned up. So the worker has not read that it began, and billiard has already passed it as alive.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery.signals import worker_ready

from tests.support import lab_app
from tests.support.history import ids, read
from tests.support.waiting import until

#: The gate with which it begins, and the message of the second child.
GATE, MESSAGE = "together", "b"


@worker_ready.connect
def let_two_die(sender: Any, **_: Any) -> None:
    children = sender.pool._pool
    stock = children.process_flush_queues

    def flush(child: Any) -> None:
        stock(child)
        if Path(os.environ[lab_app.GATES], GATE).exists():
            children.process_flush_queues = stock
            end_second(children._pool[1].pid)

    children.process_flush_queues = flush


def end_second(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
    until(lambda: MESSAGE in ids(read(Path(os.environ[lab_app.HISTORY])), "start"))
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
