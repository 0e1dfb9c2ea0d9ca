"""Reports arrive whole and in order, from any process. A full pipe drops reports and does not block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing import get_context
from unittest import mock

import pytest

from celery_lanes.leases.reports import DONE, GONE, STARTED, ReportChannel


def read(channel: ReportChannel) -> list[tuple[str, str]]:
    return [(what, tag) for what, tag, _ in channel.read()]


@pytest.fixture
def channel() -> Iterator[ReportChannel]:
    made = ReportChannel()
    yield made
    made.close()


def test_reports_are_read_in_the_order_they_were_made(channel: ReportChannel) -> None:
    # An id of an older publisher may contain what looks like another report
    reports = [(STARTED, "a#1"), (DONE, "a#1"), (GONE, "b:ü#2"), (DONE, f"x 1\n{DONE}a#1 1\nü\\n\\#3")]
    for what, tag in reports:
        channel.report(what, tag)
    assert read(channel) == reports
    assert channel.read() == []


def test_a_wakeup_is_not_a_report(channel: ReportChannel) -> None:
    channel.wake()
    assert channel.read() == []


def test_an_incomplete_report_is_read_when_it_is_complete(channel: ReportChannel) -> None:
    os.write(channel._writer, b"+a#")
    assert channel.read() == []
    os.write(channel._writer, b"1 7.5\n+b#2 8\n")
    assert channel.read() == [(DONE, "a#1", 7.5), (DONE, "b#2", 8.0)]


@pytest.mark.slow
def test_a_full_pipe_drops_whole_reports_and_does_not_block(channel: ReportChannel) -> None:
    for n in range(100_000):
        channel.report(DONE, f"{n:0200}#1")
    found = read(channel)
    assert 0 < len(found) < 100_000
    assert found == [(DONE, f"{n:0200}#1") for n in range(len(found))]
    channel.report(DONE, "after#1")
    assert read(channel) == [(DONE, "after#1")]


def test_a_report_that_is_too_long_is_dropped(channel: ReportChannel) -> None:
    channel.report(DONE, "x" * 600)
    channel.report(DONE, "short#1")
    assert read(channel) == [(DONE, "short#1")]


def test_reports_of_several_processes_do_not_mix(channel: ReportChannel) -> None:
    fork = get_context("fork")
    children = [fork.Process(target=_report_many, args=(channel, name)) for name in "abc"]
    # In a child, kombu would close the connections that tests before this one have left, and wait for their answers.
    with mock.patch("multiprocessing.util._run_after_forkers"):
        for child in children:
            child.start()
    found = []
    while any(child.is_alive() for child in children):
        found += read(channel)
    for child in children:
        child.join()
        child.close()
    found += read(channel)
    for name in "abc":
        assert [tag for _, tag in found if tag[0] == name] == [f"{name * 300}{n}#1" for n in range(500)]


def _report_many(channel: ReportChannel, name: str) -> None:
    for n in range(500):
        channel.report(DONE, f"{name * 300}{n}#1")


def test_a_report_after_close_is_dropped() -> None:
    channel = ReportChannel()
    channel.close()
    channel.report(DONE, "a#1")
