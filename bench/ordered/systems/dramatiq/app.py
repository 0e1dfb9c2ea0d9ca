"""One process with one thread and without prefetch for each queue, which its author recommends for messages that must
run in order (https://github.com/Bogdanp/dramatiq/issues/385); a queue for each slot of two machines. A key always has
the same one.

`heartbeat_timeout` is the time after which a worker counts as dead. What it had returns at a fetch of another one, with
a chance of `maintenance_chance` in a million: by default 1,000, here 100,000.
"""

from zlib import crc32

import dramatiq
import referee
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=referee.URL, heartbeat_timeout=referee.LEASE_S * 1000, maintenance_chance=100_000))


def actor_of(queue: str) -> dramatiq.Actor:
    @dramatiq.actor(
        queue_name=queue,
        actor_name=queue,
        max_retries=referee.ATTEMPTS - 1,
        min_backoff=round(referee.RETRY_AFTER_S * 1000),
        max_backoff=1000,
    )
    def handle(key: str, number: int, work_ms: int, fails: int) -> None:
        referee.handle(key, number, work_ms, fails)

    return handle


ACTORS = [actor_of(f"lane_{machine}_{number}") for machine in range(2) for number in range(referee.SLOTS)]


def send(key: str, number: int, work_ms: int, fails: int) -> None:
    ACTORS[crc32(key.encode()) % len(ACTORS)].send(key, number, work_ms, fails)
