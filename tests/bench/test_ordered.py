"""The referee: the judge names what planted systems do wrong, and the harness runs a real system."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from bench.measure.harness import ROOT
from bench.ordered import judge, plan, report, system
from bench.ordered.judge import Event, Name, Sent, Trouble
from bench.ordered.plan import Row, Scale
from bench.ordered.runner import measure

KEYS, MESSAGES = 50, 20_000
OURS = "celery_lanes"
Attempts = list[tuple[str, int, float, float]]


def sent_of(row: Row) -> dict[Name, Sent]:
    return {(each.key, each.number): Sent(0, 1) for each in row.plan()}


def attempts_of(row: Row) -> Attempts:
    """A correct system: the messages of a key one after the other, one second each."""
    return [(each.key, each.number, each.number + 0.1, each.number + 0.9) for each in row.plan()]


def events_of(attempts: Attempts) -> list[Event]:
    return [
        Event(round(at * 1e9), kind, key, number, "worker0.0/1")
        for key, number, begun, ended in attempts
        for kind, at in (("B", begun), ("E", ended))
    ]


def loses(attempts: Attempts) -> Attempts:
    """One in 10,000."""
    return [each for index, each in enumerate(attempts) if index % 10_000 != 7]


def reorders(attempts: Attempts) -> Attempts:
    """Two neighbours of one key."""
    return [
        (key, {5: 6, 6: 5}.get(number, number) if key == "key3" else number, begun, ended)
        for key, number, begun, ended in attempts
    ]


def runs_twice(attempts: Attempts) -> Attempts:
    """The last message of one key."""
    [last] = [each for each in attempts if each[:2] == ("key9", 399)]
    return [*attempts, (*last[:2], last[2] + 1, last[3] + 1)]


def overlaps(attempts: Attempts) -> Attempts:
    """One message takes longer than the time until the next begins."""
    return [
        (key, number, begun, ended + 0.5 * ((key, number) == ("key2", 8))) for key, number, begun, ended in attempts
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda attempts: attempts, "none lost, in order, one at a time"),
        (loses, "2 lost (key7 0, key7 200)"),
        (reorders, "1 out of order (key3 5)"),
        (runs_twice, "1 twice (key9 399)"),
        (overlaps, "1 overlapping (key2 8)"),
    ],
    ids=["correct", "loses", "reorders", "twice", "overlaps"],
)
def test_the_judge_names_what_a_planted_system_does_wrong(
    fault: Callable[[Attempts], Attempts], words: str, tmp_path: Path
) -> None:
    row = Row("planted", KEYS, MESSAGES)
    events = events_of(fault(attempts_of(row)))
    random.Random(1).shuffle(events)
    (tmp_path / "worker0.0").mkdir()
    (tmp_path / "worker0.0" / "1").write_text(
        "".join(f"{each.kind} {each.key} {each.number} {each.at_ns}\n" for each in events) + "B key0 3"
    )
    verdict = judge.judge(sent_of(row), judge.read_events(tmp_path))
    assert str(verdict) == words
    assert verdict.is_clean == (words == "none lost, in order, one at a time")


def test_an_attempt_of_a_killed_worker_is_over_and_one_of_a_frozen_worker_is_not() -> None:
    events = [
        Event(1, "B", "a", 0, "worker0.0/1"),
        Event(20, "B", "a", 0, "worker1.1/1"),
        Event(21, "E", "a", 0, "worker1.1/1"),
    ]
    sent = {("a", 0): Sent(0, 1)}
    assert judge.judge(sent, events, dead={"worker0.0": 10}).is_clean
    assert judge.judge(sent, events, dead={"worker0.0/1": 10}).is_clean
    assert str(judge.judge(sent, events)) == "1 overlapping (a 0)"
    assert judge.continued_s(events, Trouble(10, ("worker0.0",)), []) == [pytest.approx(10e-9)]


def test_a_key_that_never_continues_is_reported_and_one_without_more_messages_is_not() -> None:
    events = [
        Event(1, "B", "a", 0, "worker0.0/1"),
        Event(2, "B", "b", 0, "worker0.0/2"),
        Event(12, "E", "b", 0, "worker0.0/2"),
    ]
    trouble = Trouble(10, ("worker0.0",))
    assert judge.continued_s(events, trouble, [("a", 0)]) == [None]


def test_a_message_that_always_fails_is_lost_only_if_it_was_never_tried() -> None:
    events = [Event(1, "B", "a", 0, "w/1"), Event(2, "F", "a", 0, "w/1"), Event(3, "B", "a", 0, "w/1")]
    verdict = judge.judge({("a", 0): Sent(0, 1), ("a", 1): Sent(0, 1)}, events, failing="a")
    assert (verdict.lost, verdict.tries) == ([("a", 1)], [2, 0])


def test_the_times_are_those_between_publication_begin_and_end() -> None:
    row = Row("times", 2, 200)
    events = events_of(attempts_of(row))
    figures = judge.figures(sent_of(row), events, special="key1")
    assert figures["rate"] == pytest.approx(2, rel=0.05)
    assert (figures["longest_ms"], figures["behind_at_half"]) == (99_100, 0)


@pytest.mark.parametrize("row", [*plan.QUICK.rows, *plan.FULL.rows[:-1]], ids=lambda row: row.name)
def test_a_plan_numbers_the_messages_of_each_key_from_0(row: Row) -> None:
    numbers: dict[str, int] = {}
    for message in row.plan():
        assert message.number == numbers.get(message.key, 0)
        numbers[message.key] = message.number + 1
    assert len(numbers) == row.keys


@pytest.mark.parametrize("name", system.NAMES)
def test_each_system_names_its_documentation(name: str) -> None:
    found = system.load(name)
    assert found.pages
    assert found.claims


def outcome(name: str, row: str, **more: object) -> dict[str, object]:
    clean = {"lost": 0, "twice": 0, "out_of_order": 0, "overlapping": 0, "tries": [], "complete": True}
    times = {"rate": 100.0, "p99_ms": 5.0, "longest_ms": 6.0, "median_ms": 4.0}
    return {"system": name, "row": row, **clean, **times, **more}


def test_the_page_lists_first_where_another_system_is_better_and_kept_its_promises() -> None:
    found = [outcome("celery_lanes", "1 key"), outcome("stock_celery", "1 key", rate=250.0)]
    assert "* **1 key**: Celery on Redis, hashed queues 250; celery-lanes 100 messages/s." in report.losses(found)
    found[1]["lost"] = 3
    assert report.losses(found) == "In no row of this run.\n"
    assert "| Celery on Redis, hashed queues | 3 lost |" in report.promises(found)


def test_a_key_that_never_continues_is_shown_as_never() -> None:
    found = [outcome("celery_lanes", "kill -9 of a worker", continued_s=[1.0, None])]
    assert "| celery-lanes | never |" in report.recovery(found)
    # Nor had any key something left that could continue
    found = [outcome("celery_lanes", "kill -9 of a worker", continued_s=[])]
    assert "| celery-lanes | – |" in report.recovery(found)


def test_a_part_that_is_measured_again_replaces_the_first_measurement() -> None:
    about = {"command": "make referee", "machine": "a laptop", "lease_s": 3, "load": 0.1, "processors": 2}
    first = [outcome(OURS, row, round=0, rate=1.0) for row in ("1 key", "one slow key")]
    again = [outcome(OURS, "one slow key", round=0, rate=2.0)]
    document = report.merged(
        [
            {**about, "at": "2026-11-26T", "commit": "a", "outcomes": first},
            {**about, "at": "2026-11-28T", "commit": "b", "outcomes": again},
        ]
    )
    assert [(each["row"], each["rate"], each["part"]["commit"]) for each in document["outcomes"]] == [
        ("1 key", 1.0, "a"),
        ("one slow key", 2.0, "b"),
    ]
    # And each table names its own sources
    assert "at a on 2026-11-26" in report.measured(document, "rates")
    assert "at b on 2026-11-28" in report.measured(document, "waits")
    assert report.measured(document, "promises").count(" at ") == 2


def test_figures_of_a_busy_machine_are_labelled() -> None:
    page = "<!-- referee: losses -->\n<!-- /referee -->"
    document = {"outcomes": [outcome("celery_lanes", "1 key")], "load": 3.0, "processors": 2, "command": "make referee"}
    document |= {"commit": "abc", "at": "2026-01-01T00:00:00Z", "machine": "2 × a processor", "lease_s": 5}
    assert "other programs used the machine (load 3)" in report.filled(page, document)
    assert "other programs" not in report.filled(page, document | {"load": 0.1})
    assert report.NOTHING in report.filled(page, None)


def test_the_page_has_the_tables_of_its_data() -> None:
    page, data = (ROOT / report.PAGE).read_text(), ROOT / report.DATA
    document = orjson.loads(data.read_bytes()) if data.exists() else None
    assert report.filled(page, document) == page, "python -m bench.ordered report"


@pytest.mark.slow
def test_celery_lanes_keep_their_promises_when_the_referee_kills_a_worker() -> None:
    row = Row("small", 5, 60, 30, 30, fault="kill worker", fault_at_s=0.5)
    found = measure(OURS, system.load(OURS), row, Scale((row,), 1, lease_s=2, limit_s=120, patience_s=60))
    assert (found["done"], found["lost"], found["out_of_order"], found["overlapping"]) == (60, 0, 0, 0)
    assert None not in found["continued_s"]
