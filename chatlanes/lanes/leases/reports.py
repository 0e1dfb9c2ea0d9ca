"""Reports of what became of a message, on their way from the process that ran it into the in-flight table.

Guarantees that each report is applied once, and those of a process in their order, whichever thread reads them. A
report that gets lost is repeated by Celery's own result (report_channel.py).
"""

from __future__ import annotations

from collections.abc import Callable

from chatlanes.lanes.leases.report_channel import Report, ReportChannel
from chatlanes.lanes.leases.wakeups import Wakeups
from chatlanes.lanes.runtime import clock, os_threads, process


class Reports:
    """Of one in-flight table. `apply` enters a report, and returns True if that may have freed a slot."""

    def __init__(self, channel: ReportChannel, wakeups: Wakeups, apply: Callable[[Report], bool]) -> None:
        self._channel = channel
        self._wakeups = wakeups
        self._apply = apply
        self._pid = process.pid
        self._reading = os_threads.lock()
        self._poll: Callable[[], None] = self.read_children

    @property
    def is_here(self) -> bool:
        """True in the process of the table. A forked child has a copy of it, and a channel that leads here."""
        return self._pid == process.pid

    def send(self, what: str, tag: str) -> None:
        """Report what became of a message, from the worker's main process or a child of it."""
        if not self.is_here:
            self._channel.report(what, tag)
        elif self._apply(Report(what, tag, clock.now_s())):
            self._wakeups.slot_is_free()

    def read(self) -> None:
        """Apply all reports. Wakes nothing: the caller goes on to send."""
        with self._reading:  # the consumer's thread and the background thread may both read
            reports = self._channel.read()
            # Not before: if a wake-up were read away and the flag stayed set, the loop would never be woken again.
            self._wakeups.loop_was_woken()
            for report in reports:
                self._apply(report)

    def read_children(self) -> None:
        """As `read`, but only what forked children left in shared memory, which costs no system call."""
        with self._reading:  # also when there is nothing to read: another thread may be applying it just now
            if self._channel.has_reports():
                for report in self._channel.read_children():
                    self._apply(report)

    def poll(self) -> None:
        """As `read_children`, together with what the pool has to read from its children."""
        self._poll()

    def poll_with(self, poll: Callable[[], None]) -> None:
        """For a pool that reads more from its children than reports; `poll` must call `read_children`."""
        self._poll = poll
