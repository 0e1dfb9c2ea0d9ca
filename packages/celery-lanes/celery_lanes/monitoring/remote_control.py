"""Remote control commands of a worker: `inspect lanes`, which `lanes check` uses, revoke and terminate.

Guarantees an answer while the loop of the worker runs; a solo worker answers between two tasks. Celery has one set of
commands for all apps of a process: for an app without lanes, they do what Celery's own do.
"""

from __future__ import annotations

from typing import Any

from celery.worker import control
from celery.worker.control import control_command, inspect_command
from kombu.log import get_logger
from kombu.utils.functional import maybe_list
from redis.exceptions import RedisError

from celery_lanes.protocol import digest
from celery_lanes.worker import termination

logger = get_logger(__name__)

_stock_revoke, _stock_hello = control.revoke, control.hello


@inspect_command()
def lanes(state: Any) -> dict[str, Any]:
    """The lanes: the scripts of this worker, its queues, and how many messages it holds."""
    if not hasattr(state.app, "lanes"):
        return {"error": f"its app {state.app.main!r} has none"}
    in_flight = state.app.lanes.in_flight
    queues = state.consumer.task_consumer.queues if state.consumer.task_consumer else []
    return {
        "scripts": digest(),
        "queues": sorted(queue.name for queue in queues),
        "holder": in_flight.holder,
        "holding": in_flight.holding(),
        "slots": in_flight.capacity.slots,
    }


@control_command(variadic="task_id", signature="[id1 [id2 [... [idN]]]]")
def revoke(
    state: Any,
    task_id: Any,
    terminate: bool = False,
    signal: str | None = None,
    asked_by: str = "",
    **options: Any,
) -> Any:
    """Revoke task by task id (or list of ids); terminate also ends it, and buries the message of a lane."""
    if not hasattr(state.app, "lanes"):
        return _stock_revoke(state, task_id, terminate=terminate, signal=signal, **options)
    try:
        # The program that asked does the same, unless its app has no lanes.
        termination.cancel_timers(state.app, maybe_list(task_id) or [])
    except RedisError as error:
        logger.warning("lanes: cannot remove the timers of revoked tasks: %s", error)
    termination.note(maybe_list(task_id) or [], asked_by, terminate)
    return _stock_revoke(state, task_id, terminate=terminate, signal=signal, **options)


@control_command(variadic="task_id", args=[("signal", str)], signature="<signal> [id1 [id2 [... [idN]]]]")
def terminate(state: Any, signal: str, task_id: Any, **options: Any) -> Any:
    """Terminate task by task id (or list of ids), and bury the message of a lane."""
    return revoke(state, task_id, terminate=True, signal=signal, **options)


@inspect_command(visible=False)
def hello(state: Any, from_node: str, revoked: Any = None, revokes: Any = None, **options: Any) -> Any:
    """A worker starts: exchange the revoked ids, their times, and which of them are to be terminated."""
    reply = _stock_hello(state, from_node, revoked, **options)
    if reply is None:  # from itself
        return None
    termination.learn(revokes)
    return {**reply, "revokes": termination.told()}
