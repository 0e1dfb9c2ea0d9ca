"""`lock_task` as in the guide (https://huey.readthedocs.io/en/latest/guide.html#locking-tasks), with a `ttl`: without
one, the lock of a killed consumer stays. RedisExpireHuey sets both at
once. `RetryTask` tries again later without using up a retry.
"""

import referee
from huey import RedisExpireHuey, RetryTask
from huey.exceptions import TaskLockedException

huey = RedisExpireHuey("referee", url=referee.URL, results=False)


@huey.task(retries=referee.ATTEMPTS - 1, retry_delay=referee.RETRY_AFTER_S)
def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    try:
        with huey.lock_task(key, ttl=referee.LEASE_S):
            referee.handle(key, number, work_ms, fails)
    except TaskLockedException:
        raise RetryTask(delay=referee.RETRY_AFTER_S) from None
