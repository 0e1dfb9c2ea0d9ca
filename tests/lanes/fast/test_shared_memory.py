"""What a child said outlives it, in order; what it was given ahead begins in time or not at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import pytest

from chatlanes.lanes.fast.shared_memory import SIZE, ChildReports, Ring, SharedMemoryChannel
from chatlanes.lanes.leases.report_channel import DONE, RELEASED, STARTED, ReportChannel
from chatlanes.lanes.runtime import clock


def read(channel: ReportChannel) -> list[tuple[str, str]]:
    return [(what, tag) for what, tag, _ in channel.read()]


@pytest.fixture
def shared() -> Iterator[SharedMemoryChannel]:
    made = SharedMemoryChannel()
    yield made
    made.close()


def fork(channel: SharedMemoryChannel, target: Callable[..., None], *args: object) -> tuple[ChildReports, BaseProcess]:
    with channel.child() as child:
        process = get_context("fork").Process(target=target, args=args)
        process.start()
    return child, process


def test_what_a_child_said_is_read_after_it_was_killed(shared: SharedMemoryChannel) -> None:
    # Given children that say more than their memory holds, to a parent that does not read
    def say_and_die(name: str) -> None:
        shared.set_owner()
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


def test_a_child_begins_what_it_was_given_ahead_in_time_or_not_at_all(shared: SharedMemoryChannel) -> None:
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
