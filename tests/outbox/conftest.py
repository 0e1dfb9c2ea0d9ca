"""This process as one that sends: a web server, a task, a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from celery_lanes.protocol import connect
from chatlanes.outbox.sending import Outbox, outbox
from tests.support.outside import OURS
from tests.support.pipeline import TOKEN


@pytest.fixture
def here(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outbox]:
    """The outbox of this process, on an empty Redis."""
    monkeypatch.chdir(tmp_path)
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("BOT_TOKEN", TOKEN)
    outbox.cache_clear()
    yield outbox()
    outbox.cache_clear()


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client
