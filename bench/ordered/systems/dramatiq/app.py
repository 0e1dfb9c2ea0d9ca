"""ConcurrentRateLimiter with a limit of 1, which its reference calls a distributed mutex; `ttl` frees that of a killed
worker (https://dramatiq.io/reference.html#dramatiq.rate_limits.ConcurrentRateLimiter).

RateLimitExceeded is retried without end, a failure of the handler twice.
"""

import dramatiq
import referee
from dramatiq.brokers.redis import RedisBroker
from dramatiq.rate_limits import ConcurrentRateLimiter, RateLimitExceeded
from dramatiq.rate_limits.backends import RedisBackend

dramatiq.set_broker(RedisBroker(url=referee.URL, heartbeat_timeout=referee.LEASE_S * 1000))
backend = RedisBackend(url=referee.URL)


def is_retried(retries: int, error: BaseException) -> bool:
    return isinstance(error, RateLimitExceeded) or retries < referee.ATTEMPTS - 1


@dramatiq.actor(retry_when=is_retried, min_backoff=round(referee.RETRY_AFTER_S * 1000), max_backoff=1000)
def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    with ConcurrentRateLimiter(backend, f"mutex-{key}", limit=1, ttl=referee.LEASE_S * 1000).acquire():
        referee.handle(key, number, work_ms, fails)
