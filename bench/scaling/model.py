"""The model: which part saturates first, and how many of each a rate needs. Pure functions.

Assumes that a processor does one second of work in a second, that a Redis server and a thread-pool worker use one
processor each, and that each part has the measured cost per update.
Ignores the network between machines, other work on them, and a disk that is slower than the processor (with
`appendfsync always` one fsync serves all commands that arrived meanwhile, so it adds latency long before it limits the
rate).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: The share of a processor that may be in use before queueing delays grow quickly.
HEADROOM = 0.6


@dataclass(frozen=True)
class Costs:
    """Processor seconds per update: of a worker without the handler, of Redis for append and for turns, of the poller;
    and of Redis for one Bot API call with its journal and gate.
    """

    worker_s: float
    turn_s: float
    append_s: float
    poller_s: float = 0.0
    call_s: float = 0.0


@dataclass(frozen=True)
class Load:
    """The arriving updates and their handling. `handler_s` is processor time, not waiting."""

    updates_per_s: float
    handler_s: float = 0.0
    calls: float = 1.0


@dataclass(frozen=True)
class Sizing:
    """The resources for a load: Redis servers, worker processors, poller processes."""

    servers: int
    processors: int
    pollers: int


def rate(costs: Costs, processors: float, workers: int, servers: int) -> float:
    """Updates/s for a backlog on one machine. Each worker keeps one processor busy, as far as the processors suffice;
    the Redis servers share them.
    """
    return min(
        workers / costs.worker_s,
        servers / costs.turn_s,
        processors / (costs.worker_s + costs.turn_s),
    )


def most(costs: Costs, calls: float = 1.0) -> float:
    """Updates/s at which one Redis server has no processor time left."""
    return 1 / (costs.append_s + costs.turn_s + calls * costs.call_s)


def plan(costs: Costs, load: Load) -> Sizing:
    """Any load can be carried as long as bots can be divided among servers, so this raises nothing."""
    return Sizing(
        servers=_enough(load.updates_per_s / most(costs, load.calls)),
        processors=_enough(load.updates_per_s * (costs.worker_s + load.handler_s)),
        pollers=_enough(load.updates_per_s * costs.poller_s),
    )


def _enough(busy: float) -> int:
    return max(1, math.ceil(busy / HEADROOM))
