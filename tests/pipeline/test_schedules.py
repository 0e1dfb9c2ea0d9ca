"""SCHEDULES: each occurrence is fired once, however many workers watch, and missed ones are handled as asked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from celery_lanes.embedded_server import start_server
from celery_lanes.protocol import NewMessage, Store, keys
from chatlanes.bot.schedules import ScheduleRecord, owner_of
from chatlanes.updates.intake import pack_update
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline
from tests.support.schedules import Firing, firings
from tests.support.waiting import until

OWNER = owner_of(BOT_ID)
DAY_MS = 86_400_000


def ended(pipeline: Pipeline) -> list[Firing]:
    return [firing for firing in firings(pipeline.directory) if firing.what == "end"]


def record_of(pipeline: Pipeline, name: str) -> ScheduleRecord | None:
    stored = Store(pipeline.redis).schedules()[1].get((OWNER, name))
    return None if stored is None else ScheduleRecord.decode(stored)


def pretend_days_without_workers(pipeline: Pipeline, days: int, name: str = "digest", tz: str = "Europe/Berlin") -> int:
    """Returns Redis' time."""
    now_ms = Store(pipeline.redis).schedules()[0]
    record = ScheduleRecord("0 9 * * *", tz, now_ms - days * DAY_MS)
    Store(pipeline.redis).advance(OWNER, name, known=b"", record=record.encode())
    return now_ms


@pytest.mark.parametrize(
    ("pool", "schedules"), [("prefork", "every_second"), ("threads", "every_second_async"), ("gevent", "every_second")]
)
def test_three_workers_fire_each_occurrence_once_while_one_is_killed(
    make_pipeline: MakePipeline, pool: str, schedules: str
) -> None:
    # Given three workers, and a schedule that fires every second
    pipeline = make_pipeline(SCHEDULES=f"tests.support.schedules:{schedules}", LEASE_SECONDS=2)
    workers = [pipeline.worker(pool, 2, is_awaited=False) for _ in range(3)]
    for worker in workers:
        worker.tells(" ready.")
    until(lambda: len(ended(pipeline)) >= 3)
    # When one of them is killed at the moment of a firing
    before = len(firings(pipeline.directory))
    until(lambda: len(firings(pipeline.directory)) > before)
    workers[0].kill_all()
    killed = len(ended(pipeline))
    until(lambda: len(ended(pipeline)) >= killed + 4)
    for worker in workers[1:]:
        worker.stop()
    # Then each second was fired once, in order, and the session has counted it once
    done = ended(pipeline)
    times = list(dict.fromkeys(firing.due_ms for firing in done))
    assert times == [times[0] + 1000 * n for n in range(len(times))]
    number = {firing.due_ms: firing.number for firing in done}
    assert [number[due_ms] for due_ms in times] == list(range(1, len(times) + 1))
    runs = Counter(firing.due_ms for firing in done)
    assert sum(runs.values()) <= len(times) + 1  # the killed worker may have run one that it did not settle
    assert all(firing.at_s * 1000 >= firing.due_ms for firing in done)


def test_workers_with_wrong_clocks_fire_neither_early_nor_twice(make_pipeline: MakePipeline) -> None:
    # Given a worker whose clock is an hour fast, and one whose clock is an hour slow
    pipeline = make_pipeline()

    for name, off_s in (("fast", 3600), ("slow", -3600)):
        (pipeline.directory / f"{name}_clock.py").write_text(
            f"import time\nreal = time.time\ntime.time = lambda: real() + {off_s}\n"
            "from tests.support.schedules import every_second\n"
        )
        pipeline.worker("threads", 2, SCHEDULES=f"{name}_clock:every_second")
    # When a schedule fires every second
    until(lambda: len(ended(pipeline)) >= 5)
    now_ms = Store(pipeline.redis).schedules()[0]
    # Then each second is fired once, and none before it has come by the clock of Redis
    times = [firing.due_ms for firing in ended(pipeline)]
    assert times == [times[0] + 1000 * n for n in range(len(times))]
    assert times[-1] <= now_ms
    assert all(firing.late_s < 600 for firing in ended(pipeline))


def test_occurrences_of_an_outage_of_redis_are_fired_when_it_is_back(
    make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    # Given two workers, and a schedule that fires every second
    redis = start_server(tmp_path / "redis")
    pipeline = make_pipeline(redis_url=redis.url, SCHEDULES="tests.support.schedules:every_second")
    workers = [pipeline.worker("threads", 2) for _ in range(2)]
    until(lambda: len(ended(pipeline)) >= 2)
    # When Redis is killed, and is back later
    redis.kill()
    for worker in workers:
        worker.tells("schedules: Redis does not answer")
    fired = len(ended(pipeline))
    with start_server(tmp_path / "redis", port=redis.port):
        for worker in workers:
            worker.tells("schedules: Redis answers again")
        until(lambda: len(ended(pipeline)) >= fired + 4)
        for worker in workers:
            worker.stop()
    # Then every second was fired, in order
    times = list(dict.fromkeys(firing.due_ms for firing in ended(pipeline)))
    assert times == [times[0] + 1000 * n for n in range(len(times))]


def test_a_new_schedule_begins_now(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(SCHEDULES="tests.support.schedules:daily")
    before_ms = Store(pipeline.redis).schedules()[0]
    pipeline.worker("threads", 1)
    record = until(lambda: record_of(pipeline, "digest"))
    assert record is not None
    assert (record.cron, record.tz, record.last_ms) == ("0 9 * * *", "Europe/Berlin", None)
    assert record.after_ms >= before_ms
    assert (pipeline.count("appended"), firings(pipeline.directory)) == (0, [])


def test_a_schedule_whose_record_cannot_be_read_begins_now(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(SCHEDULES="tests.support.schedules:daily")
    pipeline.redis.hset(keys.SCHEDULES, keys.timer(OWNER, "digest"), "zz")
    worker = pipeline.worker("threads", 1)
    worker.tells("schedule digest: its record in Redis cannot be read")
    until(lambda: pipeline.redis.hget(keys.SCHEDULES, keys.timer(OWNER, "digest")) != b"zz")
    record = until(lambda: record_of(pipeline, "digest"))
    assert record is not None
    assert record.cron == "0 9 * * *"
    assert "Traceback" not in worker.log


@pytest.mark.parametrize(("schedules", "fired"), [("daily", 1), ("daily_all", 3), ("daily_skip", 0)])
def test_missed_occurrences_after_an_outage_of_all_workers(
    make_pipeline: MakePipeline, schedules: str, fired: int
) -> None:
    # Given a daily schedule, and no worker for three days
    pipeline = make_pipeline(SCHEDULES=f"tests.support.schedules:{schedules}")
    now_ms = pretend_days_without_workers(pipeline, 3)
    # When two workers start
    workers = [pipeline.worker("threads", 2, is_awaited=False) for _ in range(2)]
    for worker in workers:
        worker.tells(" ready.")
    # Then the missed occurrences are fired as asked, in order, and recorded
    until(lambda: record_of(pipeline, "digest").after_ms > now_ms - DAY_MS)  # type: ignore[union-attr]
    until(lambda: pipeline.pending() == 0 and len(ended(pipeline)) >= fired)
    done = ended(pipeline)
    assert [firing.due_ms for firing in done] == sorted({firing.due_ms for firing in done})
    assert len(done) == fired
    for firing in done:
        assert 0 <= firing.late_s - (now_ms - firing.due_ms) / 1000 < 60
    record = record_of(pipeline, "digest")
    assert record is not None
    assert record.last_ms == (done[-1].due_ms if done else None)


def test_the_newest_worker_decides_about_the_expression(make_pipeline: MakePipeline) -> None:
    # Given a worker, and another one that starts later with another expression
    pipeline = make_pipeline()
    pipeline.worker("threads", 1, SCHEDULES="tests.support.schedules:daily")
    until(lambda: record_of(pipeline, "digest"))
    pipeline.worker("threads", 1, SCHEDULES="tests.support.schedules:earlier")
    # Then the new one holds from then on, and nothing is fired for the past
    until(lambda: record_of(pipeline, "digest").cron == "0 8 * * *")  # type: ignore[union-attr]
    assert firings(pipeline.directory) == []


def test_a_schedule_that_was_removed_begins_anew(make_pipeline: MakePipeline) -> None:
    # Given a schedule that fired three days ago, and a worker that does not have it any more
    pipeline = make_pipeline()
    pretend_days_without_workers(pipeline, 3)
    worker = pipeline.worker("threads", 1, SCHEDULES="tests.support.schedules:failing")
    until(lambda: record_of(pipeline, "digest").is_removed)
    worker.stop()
    # When it comes back
    pipeline.worker("threads", 1, SCHEDULES="tests.support.schedules:daily")
    until(lambda: not record_of(pipeline, "digest").is_removed)
    # Then nothing is fired for the past
    assert pipeline.count("appended") == 0


def test_firings_of_one_schedule_do_not_overlap(make_pipeline: MakePipeline) -> None:
    # Given a schedule whose first firing runs for longer than the time to the next one
    pipeline = make_pipeline(SCHEDULES="tests.support.schedules:slow")
    pipeline.worker("threads", 4)
    until(lambda: pipeline.pending() >= 3)
    assert len(firings(pipeline.directory)) == 1
    # When it ends
    pipeline.open("wait")
    # Then the others follow one after the other
    until(lambda: len(ended(pipeline)) >= 3)
    events = firings(pipeline.directory)[:6]
    assert [event.what for event in events] == ["start", "end"] * 3
    assert [event.due_ms for event in events[::2]] == sorted({event.due_ms for event in events})


def test_a_failed_firing_runs_again_and_repeats_no_call(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(SCHEDULES="tests.support.schedules:failing", RETRY_BACKOFF=0.1)
    pretend_days_without_workers(pipeline, 2, "failing", "UTC")
    pipeline.worker("prefork", 1)
    until(lambda: ended(pipeline))
    assert [call["params"]["text"] for call in pipeline.simulator.calls("sendMessage")] == ["it is 09:00"]


def test_a_firing_of_an_unknown_schedule_is_buried(make_pipeline: MakePipeline) -> None:
    # Given a firing of a schedule that the worker does not have
    pipeline = make_pipeline(SCHEDULES="tests.support.schedules:daily", MAX_ATTEMPTS=2, RETRY_BACKOFF=0.1)
    firing = f"{BOT_ID}:schedule:1000:gone"
    stored = pack_update("(schedule gone)", b'{"schedule":{"name":"gone","tz":"UTC","due_ms":1000}}')
    Store(pipeline.redis).append([NewMessage(firing, "updates.0", stored, [f"{BOT_ID}/schedule:gone"])])
    # When it runs
    pipeline.worker("threads", 1)
    # Then it is buried after its attempts, because another worker might have had it
    until(lambda: pipeline.dead() == [firing])
    assert [problem["type"] for problem in pipeline.problems(firing)] == ["UnknownScheduleError"] * 2


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("schedules", "sentence"),
    [
        (
            "tests.support.schedules:wrong",
            "SCHEDULES=tests.support.schedules:wrong: Schedule('digest'): '0 25 * * *' is",
        ),
        ("tests.support.schedules:not_a_list", "SCHEDULES=tests.support.schedules:not_a_list is a Schedule: write a"),
        ("no_such_bot:schedules", "SCHEDULES=no_such_bot:schedules: there is no module no_such_bot"),
        ("schedules", "SCHEDULES=schedules: allowed is module:attribute"),
    ],
)
def test_a_worker_with_wrong_schedules_does_not_start(
    make_pipeline: MakePipeline, schedules: str, sentence: str
) -> None:
    worker = make_pipeline().worker("prefork", 1, is_awaited=False, SCHEDULES=schedules)
    assert worker.exit_code() == 2
    assert worker.log.strip().splitlines()[-1].startswith(sentence)
    assert "Traceback" not in worker.log
