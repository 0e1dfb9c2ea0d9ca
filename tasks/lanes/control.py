"""What a worker tells of itself when somebody asks: `celery -A … inspect lanes`, and `lanes check`.

Promises an answer for as long as the worker's loop goes round; a solo worker answers between two tasks.
"""

from __future__ import annotations

from typing import Any

from celery.worker.control import inspect_command

from tasks.lanes.scripts import digest


@inspect_command()
def lanes(state: Any) -> dict[str, Any]:
    """The lanes: which scripts this worker runs, which queues it reads, how much it holds."""
    settler = state.app.lanes.settler
    queues = state.consumer.task_consumer.queues if state.consumer.task_consumer else []
    return {
        "scripts": digest(),
        "queues": sorted(queue.name for queue in queues),
        "holder": settler.holder,
        "holding": settler.holding(),
        "slots": settler.room.slots,
    }
