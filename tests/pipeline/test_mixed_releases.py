"""Two releases run beside each other on one Redis, under kill -9, on the way from one to the other, and back.

The other release is a commit from before `celery_lanes` was a package of its own. Where git does not have it (a shallow
clone, an sdist), test_older_release.py still reads what it has stored.
"""

from __future__ import annotations

import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterable
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest

from celery_lanes.protocol import Store, keys
from chatlanes.broadcasts import BroadcastProgress, Broadcasts
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_timers import names
from tests.support import ROOT
from tests.support.history import Event, check_order
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.process import Process
from tests.support.schedules import firings
from tests.support.waiting import until

OLD = "4c37c64a"
CHATS, EACH = range(1, 21), 45
BURIED, RECIPIENTS = 50, range(1001, 1501)
#: Timers of each of these chats are due while one release runs, while both do, and while the other one does.
TIMED, TIMERS = range(101, 111), {"a": 1_000, "b": 8_000, "c": 20_000, "d": 60_000}

BOT = f"""
from chatlanes import Schedule
from chatlanes.bot import Bot
from tests.support import bots, schedules, timer_bot

bots.ORDERS["later"] = timer_bot.later
RECIPIENTS = range({RECIPIENTS.start}, {RECIPIENTS.stop})
bots.ORDERS["broadcasts"] = lambda ctx, _: ctx.broadcast(RECIPIENTS, "sendMessage", rate=10, text="hi")
bot = Bot(bots.handle, on_timer=timer_bot.on_timer, never_retry=(bots.BotRefusedError,))
schedules = [Schedule("tick", "* * * * * *", schedules.record, missed="all")]
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the other release."""
    archived = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True, check=False)
    if archived.returncode:
        pytest.skip(f"git does not have {OLD} here: clone the repository with its history")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["upgrade", "return"])
def test_two_releases_beside_each_other_lose_and_reorder_nothing(
    make_pipeline: MakePipeline, old: Path, way: str
) -> None:
    before, after = (old, ROOT) if way == "upgrade" else (ROOT, old)
    pipeline = make_pipeline(BOT="shop:bot", SCHEDULES="shop:schedules", LEASE_SECONDS=2, RETRY_BACKOFF=1)
    (pipeline.directory / "shop.py").write_text(BOT)
    killed: list[Process] = []

    def worker(release: Path, pool: str = "threads", slots: int = 8) -> Process:
        return pipeline.worker(pool, slots, PYTHONPATH=release)

    def kill(*processes: Process) -> None:
        for process in processes:
            process.kill_all()
            killed.append(process)

    # Given one release with a backlog, sessions, timers, a schedule, retries, a dead letter and a running broadcast
    poller, first = pipeline.poller(PYTHONPATH=before), worker(before)
    [buried] = pipeline.push(message(1, BURIED, do="refuses:it"))
    set_timers = " ".join(f"later:{name}_{ms}" for name, ms in TIMERS.items())
    pipeline.push(message(0, 60, do="broadcasts:1"), *(message(0, chat, do=set_timers) for chat in TIMED))
    push(pipeline, range(1, 16))
    until(lambda: pipeline.dead())
    until(lambda: names(pipeline).count("a") >= len(TIMED) and broadcast(pipeline).done > 5)
    pipeline.some_ended(2 * len(CHATS))
    # When its worker and its poller are killed in the middle
    kill(first, poller)
    # And workers of both run beside each other, each of which is killed once
    mixed = [worker(before, "prefork", 2), worker(after, "prefork", 2)]
    poller = pipeline.poller(PYTHONPATH=after)
    ran = len(pipeline.happened("end"))
    push(pipeline, range(16, 31))
    pipeline.some_ended(ran + 8 * len(CHATS))
    assert all(one.name in {event.worker for event in pipeline.history} for one in mixed)
    kill(mixed[0])
    mixed.append(worker(before))
    kill(mixed[1])
    survivor = worker(after)
    push(pipeline, range(31, EACH + 1))
    until(lambda: names(pipeline).count("b") >= len(TIMED))
    # And the first release stops, while its messages, timers and broadcast are left
    assert broadcast(pipeline).done < len(RECIPIENTS)
    assert pipeline.redis.zcard(keys.TIMERS)
    mixed[2].stop()
    # Then the other one does the rest: each update in order, and its session once
    del pipeline.lanes[buried]
    until(lambda: set(pipeline.lanes) <= set(pipeline.happened("end")))
    check_order(events_of(pipeline), pipeline.lanes, killed={process.name for process in killed})
    until(lambda: [pipeline.session(chat) for chat in CHATS] == [{"n": EACH}] * len(CHATS))
    # And no answer is missing or repeated, except those whose outcome a killed worker did not learn
    answers = {chat: pipeline.simulator.answers()[chat] for chat in CHATS}
    whole = [*range(1, EACH + 1)]
    assert [[*dict.fromkeys(answers[chat])] for chat in CHATS] == [whole] * len(CHATS)
    assert sum(map(len, answers.values())) - EACH * len(CHATS) <= pipeline.count("uncertain")
    # And each timer has run once, in the order of their times
    until(lambda: [pipeline.session(chat) for chat in TIMED] == [{"fired": [*TIMERS]}] * len(TIMED))
    # And the broadcast has reached each recipient once, or lists it as uncertain
    ended = until(lambda: broadcast(pipeline).ended_ms and broadcast(pipeline), within_s=180)
    calls = [call["params"] for call in pipeline.simulator.calls("sendMessage") if call["ok"]]
    reached = Counter(call["chat_id"] for call in calls if call["text"] == "hi")
    missed = {chat: why for chat, why, _ in broadcasts(pipeline).missed(ended.id)}
    assert max(reached.values()) == 1
    assert set(RECIPIENTS) - set(reached) <= set(missed)
    assert set(missed.values()) <= {"uncertain"}
    # And the schedule has fired in each second, in order
    ticks = [*dict.fromkeys(firing.due_ms for firing in firings(pipeline.directory) if firing.what == "end")]
    assert {later - earlier for earlier, later in pairwise(ticks)} == {1000}
    # And the dead letter has its error, and fails again
    assert [problem["type"] for problem in pipeline.problems(f"{BOT_ID}:{buried}")] == ["BotRefusedError"]
    assert Store(pipeline.redis).replay(f"{BOT_ID}:{buried}")
    until(lambda: pipeline.happened("start").count(buried) == 2)
    until(lambda: pipeline.dead() == [f"{BOT_ID}:{buried}"])
    survivor.stop()
    poller.stop()


def push(pipeline: Pipeline, numbers: Iterable[int]) -> None:
    """A message for each chat and number. Some fail at first."""
    pipeline.push(*(message(n, chat, do=orders(n, chat)) for n in numbers for chat in CHATS))


def orders(number: int, chat: int) -> str:
    return f"counts:1 takes:20{' fails:1' if (number + chat) % 25 == 0 else ''}"


def events_of(pipeline: Pipeline) -> list[Event]:
    return [event for event in pipeline.history if event.id in pipeline.lanes]


def broadcasts(pipeline: Pipeline) -> Broadcasts:
    return Broadcasts(pipeline.redis, BOT_ID)


def broadcast(pipeline: Pipeline) -> BroadcastProgress:
    return until(broadcasts(pipeline).all)[0]
