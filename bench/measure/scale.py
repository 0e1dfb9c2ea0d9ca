"""How much is measured: enough for a reliable figure, or just enough to check that everything runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

#: Number of chats of the throughput rows, and the approximate size of an update as JSON.
CHATS = 500
UPDATE_BYTES = 400
#: The number of update queues (QUEUES), except where the row varies it.
QUEUES = int(os.environ.get("BENCH_QUEUES", "8"))
#: A worker of the bench prints this line when it is ready.
READY = "bench: ready"


@dataclass(frozen=True)
class Scale:
    """Sizes are numbers of messages."""

    rounds: int
    chats: int
    fsyncs: tuple[str, ...]  # appendfsync policies of the server with which the peers are measured
    settings: int  # how many settings of each side are tried, before its best one is measured
    trial: dict[str, int]  # tasks of one trial, for each contender
    pools: int  # each row is measured with this many of its pools
    measured_s: float  # how long a measured run takes
    slow_chat_s: float  # how long updates arrive in a round of the slow-chat row
    intake: dict[str, int]  # updates, for each way in
    hooks: dict[str, int]  # requests, for each side
    ordered: int  # updates sent to the webhook out of order
    arrivals: dict[int, int]  # updates/s -> number of updates in a round
    answered: int  # updates, answered by bots of frameworks
    frameworks: int  # how many frameworks
    waits: int  # updates, handled by each bot
    waiting: tuple[str, ...]  # pools
    computes: int
    calls: int
    sessions: int
    hot: int
    stored: int
    seen_every: int  # of the ids of a bitmap, every n-th is set: its memory is the same
    backlogs: tuple[int, ...]
    lanes: tuple[int, ...]
    queues: tuple[int, ...]
    taken: int  # updates of a round of the growth row
    costed: int  # updates whose processor time and bytes are counted
    counted: int  # updates whose commands are counted
    policies: tuple[str, ...]  # of recovery
    replies: int  # live updates, and recipients, of a round of the broadcast row
    bursts: int  # of ten messages
    interrupts: int  # in a round
    stops: int
    uncollected: int  # updates of a round that never belong together
    killed: int  # workers of the recovery row
    added_bots: int  # of one poller
    added_rounds: int
    idle_s: float  # length of an idle round
    worked: int  # updates of the worker whose memory is measured
    worked_first: int  # updates until its first measurement
    rates_cases: int
    rates_rounds: int
    rates_processes: int
    rates_s: float  # length of a round of the rates
    scaled: int
    sizes: int
    timers: int  # that wait
    fired: int  # timers whose lateness is measured
    later: int  # tasks with a countdown
    later_s: float  # the countdown
    repeated: int  # tasks whose runs are counted
    timeout_s: int  # a third of their countdown


FULL = Scale(
    rounds=5,
    chats=CHATS,
    fsyncs=("always",),
    settings=10,
    trial={"others": 2_500, "lanes": 5_000, "stock": 1_000, "hash-routed queues": 1_000, "arq": 1_500, "rq": 500},
    pools=1,
    measured_s=1.5,
    slow_chat_s=5.0,
    intake={"lanes": 15_000, "stock": 2_000, "batched": 5_000},
    hooks={"lanes": 10_000, "bare": 15_000, "stock": 2_000},
    ordered=3_000,
    arrivals={200: 300},
    answered=800,
    frameworks=3,
    waits=20_000,
    waiting=("gevent", "threads", "asyncio"),
    computes=1_500,
    calls=1_500,
    sessions=4_000,
    hot=1_000,
    stored=10_000,
    seen_every=1,
    backlogs=(1_000, 10_000, 100_000),
    lanes=(10, 500, 100_000),
    queues=(1, 8, 64),
    taken=4_000,
    costed=4_000,
    counted=1_000,
    policies=("lease 15 s", "lease 3 s", "stock"),
    replies=300,
    bursts=4_000,
    interrupts=20,
    stops=100,
    uncollected=8_000,
    killed=5,
    added_bots=1_000,
    added_rounds=3,
    idle_s=30.0,
    worked=100_000,
    worked_first=10_000,
    rates_cases=4,
    rates_rounds=1,
    rates_processes=4,
    rates_s=15.0,
    scaled=20_000,
    sizes=5,
    timers=100_000,
    fired=20_000,
    later=50_000,
    later_s=60.0,
    repeated=2_000,
    timeout_s=10,
)

WIDE = replace(
    FULL,
    pools=4,
    arrivals={50: 120, 200: 300},
    fsyncs=("always", "everysec"),
    backlogs=(1_000, 10_000, 100_000, 1_000_000),
    lanes=(10, 500, 1_000_000),
    worked=1_000_000,
    timers=1_000_000,
)

QUICK = Scale(
    rounds=1,
    chats=CHATS,
    fsyncs=("always",),
    settings=1,
    trial={"others": 400, "rq": 200},
    pools=1,
    measured_s=0.2,
    slow_chat_s=0.5,
    intake={"lanes": 2_000, "stock": 400, "batched": 1_000},
    hooks={"lanes": 600, "bare": 600, "stock": 300},
    ordered=300,
    arrivals={200: 40},
    answered=200,
    frameworks=1,
    waits=300,
    waiting=("gevent",),
    computes=100,
    calls=100,
    sessions=400,
    hot=100,
    stored=500,
    seen_every=64,
    backlogs=(200, 400),
    lanes=(10, 400),
    queues=(1, 4),
    taken=200,
    costed=400,
    counted=100,
    policies=("lease 3 s",),
    replies=30,
    bursts=200,
    interrupts=2,
    stops=8,
    uncollected=500,
    killed=1,
    added_bots=20,
    added_rounds=1,
    idle_s=1.0,
    worked=1_500,
    worked_first=500,
    rates_cases=1,
    rates_rounds=1,
    rates_processes=2,
    rates_s=0.5,
    scaled=600,
    sizes=1,
    timers=1_000,
    fired=500,
    later=200,
    later_s=8.0,
    repeated=100,
    timeout_s=3,
)
