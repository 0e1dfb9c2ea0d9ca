"""Reports of a child survive its death, in order; a message sent to it ahead starts in time or not at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from unittest import mock

import pytest

from celery_lanes.fast.prefork_child import SIZE, ChildReports, Ring, SharedMemoryChannel
from celery_lanes.leases.reports import DONE, RELEASED, STARTED, ReportChannel
from celery_lanes.runtime import clock


def read(channel: ReportChannel) -> list[tuple[str, str]]:
    return [(what, tag) for what, tag, _ in channel.read()]


@pytest.fixture
def shared() -> Iterator[SharedMemoryChannel]:
    made = SharedMemoryChannel()
    yield made
    made.close()


def fork(channel: SharedMemoryChannel, target: Callable[..., None], *args: object) -> tuple[ChildReports, BaseProcess]:
    # In the child, kombu would close the connections that tests before this one have left, and wait for their answers.
    with channel.child() as child, mock.patch("multiprocessing.util._run_after_forkers"):
        process = get_context("fork").Process(target=target, args=args)
        process.start()
    return child, process


def test_reports_are_read_after_the_child_was_killed(shared: SharedMemoryChannel) -> None:
    # Given children that report more than their shared memory holds, to a parent that does not read
    def report_and_die(name: str) -> None:
        shared.set_owner()
        for n in range(1500):
            if n == 3:
                assert shared.accept(7, 1.5)
            shared.report(DONE, f"{name * 60}{n}#1")
        os.kill(os.getpid(), signal.SIGKILL)

    forked = [fork(shared, report_and_die, name) for name in "ab"]
    for _, process in forked:
        process.join()
        process.close()
    # Then all reports are read, and accepted jobs separately
    assert shared.has_reports()
    found = [tag for _, tag in read(shared)]
    for name in "ab":
        assert sorted(tag for tag in found if tag[0] == name) == sorted(f"{name * 60}{n}#1" for n in range(1500))
    assert [list(child.accepted) for child, _ in forked] == [[(7, 1.5)]] * 2
    # And reports of a removed child are not read
    for child, _ in forked:
        child.ring.write(b"+late#1 1\n")
        shared.forget(child)
    assert not shared.has_reports()
    assert not shared.accept(8, 1.5), "a parent has no ring"


def test_a_ring_returns_every_line() -> None:
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


def test_a_child_does_not_start_a_message_after_its_deadline(shared: SharedMemoryChannel) -> None:
    def run() -> None:
        shared.set_owner()
        for tag, start_by_s in (("own#1", None), ("early#1", clock.now_s() + 60), ("late#1", clock.now_s())):
            shared.start_by_s = start_by_s
            assert shared.begins(tag) == (tag != "late#1")

    _, process = fork(shared, run)
    process.join()
    assert process.exitcode == 0
    process.close()
    assert read(shared) == [(STARTED, "own#1"), (STARTED, "early#1"), (STARTED, "late#1"), (RELEASED, "late#1")]
