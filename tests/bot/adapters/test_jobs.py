"""python-telegram-bot's job queue through real workers: jobs are timers, which any worker runs."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import Any

from tests.bot.adapters.bots.jobs import NOTICES
from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until

JOBS = "tests.bot.adapters.bots.jobs:main"
TIMER_BOT = "tests.bot.adapters.bots.timer_bot:main"


def command(chat: int, text: str) -> dict[str, object]:
    update = message(0, chat, do=text)
    name = text.partition(" ")[0]
    update["message"]["entities"] = [{"type": "bot_command", "offset": 0, "length": len(name)}]
    return update


def timers(pipeline: Pipeline) -> list[str]:
    """The names of all timers."""
    return sorted(times(pipeline))


def times(pipeline: Pipeline) -> dict[str, int]:
    """When each timer is due, by its name."""
    found: Any = pipeline.redis.zrange("lanes:timers", 0, -1, withscores=True)
    return {each.decode().partition("\n")[2]: int(at_ms) for each, at_ms in found}


def ticks(pipeline: Pipeline) -> list[int]:
    """When each run of "ticking" was due, in ms."""
    return [int(text.removeprefix("tick ")) for text in texts(pipeline, 7)]


def test_the_timer_example(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=TIMER_BOT)
    pipeline.poller()
    worker = pipeline.worker("threads", 4)
    # Given chats whose timers are set, set again, unset, and wrong
    pipeline.push(*(command(7, text) for text in ("/set 3600", "/set 0.1")))
    pipeline.push(*(command(8, text) for text in ("/set 3600", "/unset", "/unset")))
    pipeline.push(command(9, "/set x"))
    pipeline.drained()
    # Then the last one of each chat runs
    until(lambda: len(texts(pipeline, 7)) == 3)
    assert texts(pipeline, 7) == ["set", "set, the old one is removed", "Over after 0.1 seconds"]
    assert texts(pipeline, 8) == ["set", "unset", "no timer"]
    assert texts(pipeline, 9) == ["write /set and seconds"]
    assert timers(pipeline) == []
    # And one that is due while no worker runs is run by another one
    pipeline.push(command(7, "/set 0.5"))
    until(lambda: len(timers(pipeline)) == 1)
    worker.kill_all()
    until(lambda: pipeline.redis.zrangebyscore("lanes:timers", 0, time.time() * 1000))
    pipeline.worker("prefork", 2)
    until(lambda: texts(pipeline, 7)[3:] == ["set", "Over after 0.5 seconds"])


def test_jobs(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=JOBS, MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01, LEASE_SECONDS=4)
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.worker("prefork", 2)
    # A job that is set by an attempt that fails is not set; it runs with the data of its chat and user
    pipeline.push(message(0, 7, do="once"))
    until(lambda: len(texts(pipeline, 7)) == 1)
    at = "{'at': datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)}"
    assert texts(pipeline, 7) == [f"beep {at} 11 ['seen'] 7"]
    # A repeating job keeps its data, and removes itself
    pipeline.push(message(0, 6, do="repeat"))
    until(lambda: len(texts(pipeline, 6)) == 3)
    assert texts(pipeline, 6) == ["2 left", "1 left", "0 left"]
    # Jobs of other chats and without a chat
    pipeline.push(message(0, 7, do="elsewhere"))
    until(lambda: texts(pipeline, 8) == ["another 1 1 [] None"] and "notice now" in texts(pipeline, NOTICES))
    pipeline.drained()
    assert sum(" next" in name for name in timers(pipeline)) == 5
    # Another chat removes jobs by their names
    pipeline.push(message(0, 5, do="remove"))
    pipeline.drained()
    assert texts(pipeline, 5) == ["removed ['hourly', 'morning\\n*']"]
    assert sum(" next" in name for name in timers(pipeline)) == 3
    # What cannot be stored is refused
    [refused] = pipeline.push(message(0, 4, do="unnameable"))
    pipeline.drained()
    assert texts(pipeline, 4) == ["unnameable.<locals>.<lambda>", "Shorthands.reply", "partial"]
    assert "run_custom needs APScheduler" in pipeline.problems(f"{BOT_ID}:{refused}")[0]["message"]


def test_a_repeating_job_continues_after_runs_that_fail(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=JOBS, MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.push(message(0, 7, do="failing"))
    until(lambda: len(pipeline.dead()) >= 2 and texts(pipeline, 7).count("works") >= 2)
    # Each failed run is buried, and the error handlers were called with the job
    assert all(id_.startswith(f"{BOT_ID}:timer:") for id_ in pipeline.dead())
    assert any(text.startswith("error in fail_odd: due at ") for text in texts(pipeline, 7))


def test_an_outage_is_followed_by_one_late_run(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=JOBS)
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    # Given a job that runs each second
    pipeline.push(message(0, 7, do="ticking"))
    until(lambda: len(texts(pipeline, 7)) == 2)
    worker.kill_all()
    # When no worker runs for some seconds
    [due_ms] = [at_ms for name, at_ms in times(pipeline).items() if re.fullmatch(r"\w+ next", name)]
    until(lambda: pipeline.redis.time()[0] * 1000 > due_ms + 3000)
    pipeline.worker("threads", 2)
    # Then one run is late, and the others keep to the plan. Only the run that the kill interrupted may come twice
    until(lambda: due_ms in ticks(pipeline)[:-3])
    due = ticks(pipeline)
    late = due.index(due_ms)
    if due[late - 1] == due[late - 2]:
        due.pop(late - 1)
    passed = [later - earlier for earlier, later in pairwise(due)]
    assert passed.pop(due.index(due_ms)) >= 3000
    assert [gap for gap in passed if gap != 1000] == []


def test_jobs_of_a_handler_that_is_killed_are_set_once(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=JOBS, LEASE_SECONDS=4)
    pipeline.poller()
    worker = pipeline.worker("prefork", 2)
    # Given a handler that has set jobs, and is killed before its update is settled
    until(lambda: "notice started" in texts(pipeline, NOTICES) and len(timers(pipeline)) == 6)
    started = timers(pipeline)
    pipeline.push(message(0, 7, do="held"))
    until(lambda: texts(pipeline, 7) == ["holding"])
    worker.kill_all()
    assert timers(pipeline) == started
    # When another worker runs it
    pipeline.worker("threads", 2)
    pipeline.open("gate")
    # Then each job is set, and runs, once
    until(lambda: sum(text.startswith("tick") for text in texts(pipeline, 7)) == 2)
    pipeline.drained()
    assert len(timers(pipeline)) == len(started) + 6
    assert sum(text.startswith("tick") for text in texts(pipeline, 7)) == 2


def test_jobs_of_the_start_are_set_once(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=JOBS)
    pipeline.poller()
    # Given two workers at once, whose processes all start the bot
    for worker in [pipeline.worker("prefork", 3, is_awaited=False) for _ in range(2)]:
        worker.tells(" ready.")
    until(lambda: "notice started" in texts(pipeline, NOTICES) and len(timers(pipeline)) == 6)
    first = times(pipeline)
    # When they start again
    pipeline.worker("threads", 2)
    until(lambda: texts(pipeline, NOTICES).count("notice started") >= 2)
    # Then the repeating jobs are as they were
    until(lambda: times(pipeline) == first)
    # And each start has set the job that runs once, unless that of another start still waited
    pipeline.drained()
    assert texts(pipeline, NOTICES).count("notice started") <= 3
