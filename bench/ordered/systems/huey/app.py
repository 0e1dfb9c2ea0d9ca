"""A queue for each slot of two machines, each with a consumer of one thread; a key always has the same one.

Each queue is an instance of its own, as in https://huey.readthedocs.io/en/latest/guide.html#multiple-huey-instances
"""

import os
from zlib import crc32

import referee
from huey import RedisHuey

QUEUES = [
    RedisHuey(f"lane{machine}x{number}", url=referee.URL, results=False)
    for machine in range(2)
    for number in range(referee.SLOTS)
]
#: That of this consumer.
own = QUEUES[int(os.environ["REFEREE_WORKER"]) * referee.SLOTS + int(os.environ["REFEREE_PART"])]
TASKS = [
    each.task(retries=referee.ATTEMPTS - 1, retry_delay=referee.RETRY_AFTER_S, name="handle")(referee.handle)
    for each in QUEUES
]


def send(key: str, number: int, work_ms: int, fails: int) -> None:
    TASKS[crc32(key.encode()) % len(TASKS)](key, number, work_ms, fails)
