"""Connection options from REDIS_URL, REDIS_CA and SENTINEL_MASTER, for Celery and for our own clients.

`rediss://` always verifies certificates; kombu's default does not.
"""

import ssl
from typing import Any

from redis import Redis

from celery_lanes.protocol import connect, use_texts
from chatlanes.settings import Settings
from chatlanes.updates.timer_texts import TIMER_TEXTS


def ssl_options(settings: Settings) -> dict[str, Any] | None:
    """redis-py's ssl_* arguments; None without TLS."""
    if not settings.redis_url.startswith("rediss://"):
        return None
    ca = {"ssl_ca_certs": str(settings.redis_ca)} if settings.redis_ca else {}
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **ca}


def connect_to(settings: Settings, timeout_s: float = 5.0) -> Redis:
    """A client of the configured server. It connects at its first command, and its scripts read the timers of bots."""
    use_texts(TIMER_TEXTS)
    return connect(settings.redis_url, ssl=ssl_options(settings), master=settings.sentinel_master, timeout_s=timeout_s)
