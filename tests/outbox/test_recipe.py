"""The table of docs/outbox.md: its calls are sent once, wherever the process dies."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from celery_lanes.protocol import Store, keys
from tests.docs.tutorial import steps
from tests.support import ROOT
from tests.support.outside import outside
from tests.support.pipeline import TOKEN

BEGIN = """
import os, signal, sqlite3
import chatlanes
from shop import outbox

database = sqlite3.connect("shop.db", timeout=60)
database.execute(outbox.SCHEMA)
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
"""
ROLLED_BACK = """
outbox.put(database, 7, "sendMessage", text="never")
database.rollback()
outbox.sweep(database)
"""
DIES_AFTER_THE_COMMIT = """
with database:
    outbox.put(database, 7, "sendMessage", text="one")
    outbox.put(database, 7, "sendMessage", text="two")
die()
"""
DIES_AFTER_THE_SEND = """
send = chatlanes.send
chatlanes.send = lambda *call, **more: (send(*call, **more), die())
outbox.sweep(database)
"""
SWEEPS = """
outbox.sweep(database)
"""
PUTS_A_MISTAKE = """
with database:
    outbox.put(database, 7, "sendMessage", txt="wrong")
    outbox.put(database, 7, "sendMessage", text="three")
outbox.sweep(database)
outbox.sweep(database)
"""


@pytest.mark.slow
def test_each_committed_call_is_sent_once(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    [file] = [step for step in steps((ROOT / "docs/outbox.md").read_text()) if step.file]
    (tmp_path / "shop").mkdir()
    (tmp_path / file.file).write_text(file.text)  # type: ignore[operator]

    def run(text: str) -> int:
        path = f"{ROOT}:{tmp_path}"
        env = {**outside(), "PYTHONPATH": path, "REDIS_URL": redis_url, "BOT_TOKEN": TOKEN}
        return subprocess.run(
            [sys.executable, "-c", BEGIN + text], cwd=tmp_path, env=env, check=False, timeout=120
        ).returncode

    def rows() -> list[tuple[str, str | None]]:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            return database.execute("SELECT params, error FROM outbox ORDER BY id").fetchall()

    def sent() -> list[str]:
        """The texts of the calls that wait, in their order."""
        ids = [each.decode() for each in redis.zrange(keys.pending("updates"), 0, -1)]
        assert len(ids) == int(redis.hget(keys.COUNTS, "appended") or 0) == Store(redis).pending()
        return [(redis.get(keys.body(id_)) or b"").decode().partition('"text":"')[2].partition('"')[0] for id_ in ids]

    # A transaction that is rolled back leaves nothing
    assert run(ROLLED_BACK) == 0
    assert (rows(), sent()) == ([], [])
    # A process that dies right after the commit leaves the rows
    assert run(DIES_AFTER_THE_COMMIT) == -signal.SIGKILL
    assert (len(rows()), sent()) == (2, [])
    # One that dies between the send and the deletion leaves a row that was sent
    assert run(DIES_AFTER_THE_SEND) == -signal.SIGKILL
    assert (len(rows()), sent()) == (2, ["one"])
    # The next sweep sends the rest, and deletes both
    assert run(SWEEPS) == 0
    assert (rows(), sent()) == ([], ["one", "two"])
    # A row that cannot be sent keeps no other one waiting
    assert run(PUTS_A_MISTAKE) == 0
    [(_, error)] = rows()
    assert "did you mean text?" in str(error)
    assert sent() == ["one", "two", "three"]
