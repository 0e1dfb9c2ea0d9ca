"""The released peers with the settings that their documentation recommends for throughput. All are tried, and the best
is measured.

`how` says whether a queue loses tasks when a worker dies.
"""

from __future__ import annotations

from redis import Redis

from bench.peers.peer import Choice, PeerQueue

HIREDIS = "hiredis==3.5.0"


def _in_stream(client: Redis) -> int:
    """Messages not delivered yet, plus those delivered and not acknowledged."""
    [group] = client.xinfo_groups("noop")
    return int(group["lag"] or 0) + int(group["pending"])


def _in_rq(client: Redis) -> int:
    return int(client.llen("rq:queue:noop")) + int(client.zcard("rq:wip:noop"))


_PACKAGES = ("taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", HIREDIS, "orjson==3.13.0", "uvloop==0.23.0")
_TASKIQ = ("taskiq", "worker", "taskiq_peer:broker", "--log-level", "WARNING")
_TASKIQ_CHOICES: tuple[Choice, ...] = (
    ("2 processes", {}, (*_TASKIQ, "--workers", "2"), 1),
    ("2 processes, prefetch 100", {}, (*_TASKIQ, "--workers", "2", "--max-prefetch", "100"), 1),
)
_ARQ = ("arq", "arq_peer.WorkerSettings")
_RQ = ("rq", "worker-pool", "noop", "-w", "rq.worker.SimpleWorker", "-S", "json", "-l", "WARNING", "-u", "URL")
_HUEY = ("huey_consumer", "huey_peer.huey", "--no-periodic", "--quiet")

PEERS = (
    PeerQueue(
        "dramatiq",
        "dramatiq_peer",
        ("dramatiq==2.2.1", "redis==8.1.0", HIREDIS),
        lambda client: int(client.hlen("dramatiq:default.msgs")),
        (
            ("2 processes, 8 threads", {}, ("dramatiq", "dramatiq_peer", "-p", "2", "-t", "8"), 1),
            (
                "2 processes, 8 threads, prefetch 100",
                {"dramatiq_queue_prefetch": "100"},
                ("dramatiq", "dramatiq_peer", "-p", "2", "-t", "8"),
                1,
            ),
            (
                "3 processes, 8 threads, prefetch 100",
                {"dramatiq_queue_prefetch": "100"},
                ("dramatiq", "dramatiq_peer", "-p", "3", "-t", "8"),
                1,
            ),
        ),
    ),
    PeerQueue(
        "taskiq-redis",
        "taskiq_peer",
        _PACKAGES,
        lambda client: int(client.llen("noop")),
        _TASKIQ_CHOICES,
        how="list, loses what a dead worker had",
    ),
    PeerQueue(
        "taskiq-redis stream",
        "taskiq_peer",
        _PACKAGES,
        _in_stream,
        _TASKIQ_CHOICES,
        {"BENCH_STREAM": "1"},
        how="acknowledges",
    ),
    PeerQueue(
        "huey",
        "huey_peer",
        ("huey==3.5.4", "redis==8.1.0", HIREDIS),
        lambda client: int(client.llen("huey.redis.noop")),
        (
            ("2 processes", {}, (*_HUEY, "-k", "process", "-w", "2"), 1),
            ("8 threads", {}, (*_HUEY, "-k", "thread", "-w", "8"), 1),
            ("4 processes", {}, (*_HUEY, "-k", "process", "-w", "4"), 1),
        ),
        how="loses what a dead worker had",
    ),
    PeerQueue(
        "arq",
        "arq_peer",
        ("arq==0.28.0", "redis==5.3.1", HIREDIS),
        lambda client: int(client.zcard("arq:queue")),
        (
            ("2 processes, 100 jobs", {"BENCH_JOBS": "100", "BENCH_POLL_S": "0.01"}, _ARQ, 2),
            ("1 process, 100 jobs", {"BENCH_JOBS": "100", "BENCH_POLL_S": "0.01"}, _ARQ, 1),
            ("1 process, 1,000 jobs", {"BENCH_JOBS": "1000", "BENCH_POLL_S": "0.01"}, _ARQ, 1),
        ),
    ),
    PeerQueue(
        "rq",
        "rq_peer",
        ("rq==3.0.0", "redis==8.1.0", HIREDIS),
        _in_rq,
        (
            ("2 SimpleWorkers", {}, (*_RQ, "-n", "2"), 1),
            ("4 SimpleWorkers", {}, (*_RQ, "-n", "4"), 1),
        ),
    ),
)
