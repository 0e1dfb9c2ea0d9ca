"""Chords of Celery whose worker has died while it published the body.

In Celery's Redis backend (since 5.7), the task of a header that ends last claims the chord for some seconds, and
publishes the body. If its worker dies in between, the task runs again, finds the claim, and publishes nothing.
So a task of a chord whose worker has died runs again when no claim is left: the body is not lost.
"""

from __future__ import annotations

from typing import Any

from celery.backends.redis import RedisBackend

_DONE = b"done"


def claimed_for_s(task: Any) -> float:
    """How long the chord of the current run is still claimed; 0 if it is not, or its body has been published."""
    request, backend = task.request, task.backend
    if not (request.chord and request.group and isinstance(backend, RedisBackend)):
        return 0.0
    claim = backend.get_key_for_group(request.group, ".c")
    owner = backend.client.get(claim)
    left_ms: int = backend.client.pttl(claim)
    return 0.0 if owner in (None, _DONE) else max(left_ms, 1_000) / 1000
