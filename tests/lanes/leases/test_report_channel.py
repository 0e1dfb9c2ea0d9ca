"""Reports are whole, in order, from any process. A full pipe drops without blocking."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing import get_context

import pytest

from chatlanes.lanes.leases.report_channel import DONE, GONE, STARTED, ReportChannel


def read(handoff: ReportChannel) -> list[tuple[str, str]]:
    return [(what, tag) for what, tag, _ in handoff.read()]


@pytest.fixture
def handoff() -> Iterator[ReportChannel]:
    made = ReportChannel()
    yield made
    made.close()


def test_reports_are_read_in_the_order_they_were_made(handoff: ReportChannel) -> None:
    reports = [(STARTED, "a#1"), (DONE, "a#1"), (GONE, "b:ü#2")]
    for what, tag in reports:
        handoff.report(what, tag)
    assert read(handoff) == reports
    assert handoff.read() == []


def test_waking_makes_it_readable_and_reports_nothing(handoff: ReportChannel) -> None:
    handoff.wake()
    assert handoff.read() == []


def test_half_a_report_waits_for_its_other_half(handoff: ReportChannel) -> None:
    os.write(handoff._writer, b"+a#")
    assert handoff.read() == []
    os.write(handoff._writer, b"1 7.5\n+b#2 8\n")
    assert handoff.read() == [(DONE, "a#1", 7.5), (DONE, "b#2", 8.0)]


def test_a_full_pipe_drops_whole_reports_and_does_not_block(handoff: ReportChannel) -> None:
    for n in range(100_000):
        handoff.report(DONE, f"{n:0200}#1")
    found = read(handoff)
    assert 0 < len(found) < 100_000
    assert found == [(DONE, f"{n:0200}#1") for n in range(len(found))]
    handoff.report(DONE, "after#1")
    assert read(handoff) == [(DONE, "after#1")]


def test_a_report_too_long_to_be_written_at_once_is_dropped(handoff: ReportChannel) -> None:
    handoff.report(DONE, "x" * 600)
    handoff.report(DONE, "short#1")
    assert read(handoff) == [(DONE, "short#1")]


def test_reports_of_several_processes_do_not_mix(handoff: ReportChannel) -> None:
    fork = get_context("fork")
    children = [fork.Process(target=_report_many, args=(handoff, name)) for name in "abc"]
    for child in children:
        child.start()
    found = []
    while any(child.is_alive() for child in children):
        found += read(handoff)
    for child in children:
        child.join()
        child.close()
    found += read(handoff)
    for name in "abc":
        assert [tag for _, tag in found if tag[0] == name] == [f"{name * 300}{n}#1" for n in range(500)]


def _report_many(handoff: ReportChannel, name: str) -> None:
    for n in range(500):
        handoff.report(DONE, f"{name * 300}{n}#1")


def test_a_report_after_the_end_is_dropped() -> None:
    handoff = ReportChannel()
    handoff.close()
    handoff.report(DONE, "a#1")
