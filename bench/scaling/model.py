"""The model: what saturates first, and how much of everything a rate needs. Pure.

Promises only this: a processor does one second of work in a second, a Redis server and a thread-pool worker use one
processor each, and an update takes of each part what it took when it was measured.
Leaves out: the network between machines, other work on them, a disk that is slower than the processor (with
`appendfsync always` one fsync serves all commands that came meanwhile, so it costs delay long before it costs rate).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Of a processor that serves requests, this much may be in use before what waits for it grows quickly.
HEADROOM = 0.6


@dataclass(frozen=True)
class Costs:
    """Processor seconds for an update: of a worker for all but the handler, of Redis for its append and for its turns,
    of the poller; and of Redis for a Bot API call with its journal and gate.
    """

    worker_s: float
    turn_s: float
    append_s: float
    poller_s: float = 0.0
    call_s: float = 0.0


@dataclass(frozen=True)
class Load:
    """What comes and what is done with it. `handler_s` is processor time, not waiting."""

    updates_per_s: float
    handler_s: float = 0.0
    calls: float = 1.0


@dataclass(frozen=True)
class Sizing:
    """What a load needs: Redis servers, worker processors, poller processes."""

    servers: int
    processors: int
    pollers: int


def rate(costs: Costs, processors: float, workers: int, servers: int) -> float:
    """Updates/s that a backlog is worked off with on one machine: by workers of one busy processor each, if there are
    so many, beside the Redis servers.
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
    """Raises nothing: there is no load that machines cannot carry, as long as bots can be divided among servers."""
    return Sizing(
        servers=_enough(load.updates_per_s / most(costs, load.calls)),
        processors=_enough(load.updates_per_s * (costs.worker_s + load.handler_s)),
        pollers=_enough(load.updates_per_s * costs.poller_s),
    )


def _enough(busy: float) -> int:
    return max(1, math.ceil(busy / HEADROOM))
