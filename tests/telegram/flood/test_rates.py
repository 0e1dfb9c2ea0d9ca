"""The rates hold across four processes: compares every granted slot with all others.

The used share of a rate depends on the machine; `make bench ARGS="--only rates"` measures it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from bench.load.limited_calls import BEGUN, RatePlan
from celery_lanes.protocol import connect
from chatlanes.telegram.flood.gate import BURST, SLACK_S
from chatlanes.telegram.flood.keys import COUNTS, RATE
from tests.support import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.slow

PER_BOT, PER_CHAT, PER_GROUP = 300, 20, 600
#: The chats of each process: its own, two that all share, and a group.
SHARED, GROUP = (1, 2), -1
#: The duration, as a number of slots of the bot's rate.
SLOTS = 600


@pytest.fixture
def grants(redis_url: str, tmp_path: Path) -> list[tuple[float, int]]:
    """(s, chat) of every slot granted to four processes."""
    rates = {"per_bot": PER_BOT, "per_chat": PER_CHAT, "per_group": PER_GROUP}
    processes = []
    for number in range(4):
        chats = [GROUP, *SHARED, *range(100 * number + 10, 100 * number + 15)]
        plan = RatePlan(redis_url, str(tmp_path / str(number)), chats, rates=rates)
        command = [sys.executable, "-m", "bench.load.limited_calls", plan.text()]
        processes.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
    assert [process.stdout.readline().strip() for process in processes if process.stdout] == [BEGUN] * 4
    with connect(redis_url) as redis:
        started: list[float] = []

        def enough() -> bool:
            next_us = redis.hget(f"{RATE}1", "next")
            started.extend([float(next_us)] if next_us and not started else [])
            return next_us is not None and float(next_us) - started[0] >= SLOTS / PER_BOT * 1_000_000

        until(enough)
        for process in processes:
            process.terminate()
        assert [(process.communicate(timeout=60), process.returncode) for process in processes] == [(("", None), 0)] * 4
        assert [key for key in redis.scan_iter() if redis.pttl(key) == -1] == [f"{COUNTS}1".encode()]
    return sorted((at / 1_000_000, chat) for n in range(4) for at, chat in json.loads((tmp_path / str(n)).read_text()))


def most_ahead(moments: list[float], rate: float) -> float:
    """The largest number of messages by which any stretch of time exceeds the rate."""
    most, least = 0.0, 0.0
    for place, at in enumerate(moments):
        lead = place - (at - moments[0]) * rate
        least = min(least, lead)
        most = max(most, lead - least)
    return most


def test_four_processes_exceed_no_rate(grants: list[tuple[float, int]]) -> None:
    # Then the bot exceeds its rate by at most its slack: 15 messages, where 1 % of 10 s is 30
    assert most_ahead([at for at, _ in grants], PER_BOT) <= SLACK_S * PER_BOT - 1 + 0.01
    # And each chat and group by at most its burst
    chats: dict[int, list[float]] = defaultdict(list)
    for at, chat in grants:
        chats[chat].append(at)
    assert {GROUP, *SHARED} < set(chats)
    for chat, moments in chats.items():
        assert most_ahead(moments, PER_GROUP / 60 if chat < 0 else PER_CHAT) <= BURST - 1 + 0.01, chat
