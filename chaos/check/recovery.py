"""The recovery time after a kill. Pure functions.

For each kill that met updates in flight: the time until the last of them was started elsewhere. In flight are the
updates that the killed processes ran, and with fences also those that were leased to their worker and not started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from chaos.evidence.aof import FOREVER, Hold, MessageId
from chaos.evidence.records import Evidence, HandlerRun, InjectedFault


def times_s(evidence: Evidence) -> list[float]:
    """One time per kill that met updates in flight; an update that never ran again (buried) does not count."""
    runs, starts, holds = _by_pid(evidence.all_runs), _starts(evidence.all_runs), _never_started(evidence)
    times = []
    for fault in evidence.faults:
        held = {run.id for pid in fault.pids for run in runs[pid] if run.start_s <= fault.at_s <= run.end_s}
        held |= {
            hold.message
            for pid in fault.pids
            for hold in holds[pid]
            if hold.from_s <= fault.at_s < hold.until_s < FOREVER
        }
        waits_s = [start_s - fault.at_s for message in held if (start_s := _next(starts[message], fault)) is not None]
        if waits_s:
            times.append(max(waits_s))
    return times


def _next(starts_s: list[float], fault: InjectedFault) -> float | None:
    return min((start_s for start_s in starts_s if start_s > fault.at_s), default=None)


def _by_pid(runs: Sequence[HandlerRun]) -> dict[int, list[HandlerRun]]:
    by_pid: dict[int, list[HandlerRun]] = defaultdict(list)
    for run in runs:
        by_pid[run.pid].append(run)
    return by_pid


def _starts(runs: Sequence[HandlerRun]) -> dict[MessageId, list[float]]:
    starts: dict[MessageId, list[float]] = defaultdict(list)
    for run in runs:
        starts[run.id].append(run.start_s)
    return starts


def _never_started(evidence: Evidence) -> dict[int, list[Hold]]:
    started = {(run.id, run.fence) for run in evidence.all_runs}
    by_pid: dict[int, list[Hold]] = defaultdict(list)
    for key, hold in (evidence.holds or {}).items():
        if key not in started:
            by_pid[hold.pid].append(hold)
    return by_pid
