"""Reports are whole, in order, from any process. What a child said outlives it; a full pipe drops without blocking."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import pytest

from chatlanes.lanes.fast.shared_memory import SIZE, ChildReports, Ring, SharedMemoryChannel
from chatlanes.lanes.leases.report_channel import DONE, GONE, RELEASED, STARTED, ReportChannel
from chatlanes.lanes.runtime import clock


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


@pytest.fixture
def shared() -> Iterator[SharedMemoryChannel]:
    made = SharedMemoryChannel()
    yield made
    made.close()


def fork(handoff: SharedMemoryChannel, target: Callable[..., None], *args: object) -> tuple[ChildReports, BaseProcess]:
    with handoff.child() as child:
        process = get_context("fork").Process(target=target, args=args)
        process.start()
    return child, process


def test_reports_of_a_killed_child_are_read(shared: SharedMemoryChannel) -> None:
    # Given children that say more than their memory holds, to a parent that does not read
    def say_and_die(name: str) -> None:
        shared.own()
        for n in range(1500):
            if n == 3:
                assert shared.accept(7, 1.5)
            shared.report(DONE, f"{name * 60}{n}#1")
        os.kill(os.getpid(), signal.SIGKILL)

    forked = [fork(shared, say_and_die, name) for name in "ab"]
    for _, process in forked:
        process.join()
        process.close()
    # Then all of it is there, and what begins is told apart
    assert shared.has_reports()
    found = [tag for _, tag in read(shared)]
    for name in "ab":
        assert sorted(tag for tag in found if tag[0] == name) == sorted(f"{name * 60}{n}#1" for n in range(1500))
    assert [list(child.accepted) for child, _ in forked] == [[(7, 1.5)]] * 2
    # And what a child says that has been forgotten is not
    for child, _ in forked:
        child.ring.write(b"+late#1 1\n")
        shared.forget(child)
    assert not shared.has_reports()
    assert not shared.accept(8, 1.5), "a parent has no such memory"


def test_a_ring_gives_back_every_line_it_took() -> None:
    ring, sent, found = Ring(), [], b""
    for n in range(3000):
        line = b"%d " % n * (n % 97 + 1) + b"\n"
        while not ring.write(line):
            assert len(found) < len(b"".join(sent))
            found += ring.read()
        sent.append(line)
    assert found + ring.read() == b"".join(sent)
    assert not ring.has_lines()
    assert not ring.write(b"x" * (SIZE + 1))


def test_a_child_starts_queued_jobs_in_time_or_not_at_all(shared: SharedMemoryChannel) -> None:
    def run() -> None:
        shared.own()
        for tag, start_by_s in (("own#1", None), ("early#1", clock.now_s() + 60), ("late#1", clock.now_s())):
            shared.start_by_s = start_by_s
            assert shared.begins(tag) == (tag != "late#1")

    _, process = fork(shared, run)
    process.join()
    assert process.exitcode == 0
    process.close()
    assert read(shared) == [(STARTED, "own#1"), (STARTED, "early#1"), (STARTED, "late#1"), (RELEASED, "late#1")]
