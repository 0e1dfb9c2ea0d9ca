"""Carries the reports about a message from the process that runs it to the in-flight table.

Guarantees that each report is applied once, and that those of one process are applied in order, whichever thread reads
them. If a report is lost, Celery's own result has the same effect (report_channel.py).
"""

from __future__ import annotations

from collections.abc import Callable

from chatlanes.lanes.leases.report_channel import Report, ReportChannel
from chatlanes.lanes.leases.wakeups import Wakeups
from chatlanes.lanes.runtime import clock, os_threads, process


class Reports:
    """The reports for one in-flight table. `apply` applies one, and returns True if that may have freed a slot."""

    def __init__(self, channel: ReportChannel, wakeups: Wakeups, apply: Callable[[Report], bool]) -> None:
        self._channel = channel
        self._wakeups = wakeups
        self._apply = apply
        self._pid = process.pid
        self._reading = os_threads.lock()
        self._poll: Callable[[], None] = self.read_children

    @property
    def is_owner(self) -> bool:
        """True in the process that owns the table. A forked child has a copy of it, and a channel to the owner."""
        return self._pid == process.pid

    def send(self, what: str, tag: str) -> None:
        """Report about a message, from the worker's main process or one of its children."""
        if not self.is_owner:
            self._channel.report(what, tag)
        elif self._apply(Report(what, tag, clock.now_s())):
            self._wakeups.slot_is_free()

    def read(self) -> None:
        """Apply all reports. Wakes no thread: the caller sends the acks next."""
        with self._reading:  # the consumer's thread and the background thread may both read
            reports = self._channel.read()
            # Reset after the read: if the read consumed a wake-up and the flag stayed set, nothing would wake the loop.
            self._wakeups.loop_was_woken()
            for report in reports:
                self._apply(report)

    def read_children(self) -> None:
        """Like `read`, but only the reports in shared memory. Makes no system call."""
        with self._reading:  # even if there is nothing to read: another thread may still be applying reports
            if self._channel.has_reports():
                for report in self._channel.read_children():
                    self._apply(report)

    def poll(self) -> None:
        """Like `read_children`, together with what the pool itself reads from its children."""
        self._poll()

    def poll_with(self, poll: Callable[[], None]) -> None:
        """Set by a pool that reads more than reports from its children. `poll` must call `read_children`."""
        self._poll = poll
