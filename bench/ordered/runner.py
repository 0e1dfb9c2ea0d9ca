"""One row of one system: fresh servers and workers, the messages, the fault, the files for the judge."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.measure.harness import BenchFailedError, BenchProcess
from bench.ordered import judge
from bench.ordered.judge import Event, Name, Sent, Trouble
from bench.ordered.plan import SPECIAL, WARM_UP, Message, Row, Scale, write
from bench.ordered.servers import Server
from bench.ordered.system import HERE, SLOTS, WORKERS, System, folder, programs

WARM = "warm-"
READY_WITHIN_S, PUBLISHED_WITHIN_S = 90.0, 3600.0
#: A killed worker or server is started again after this time, as a supervisor does.
RESTART_AFTER_S = 1.0
#: A worker that runs nothing for this long is struck while it is idle.
BUSY_WITHIN_S = 1.0
#: After the last end: messages that run twice are still seen.
LINGER_S = 1.0
#: The retries of a key that fails are over when nothing was written for this long.
QUIET_S = 4.0


@dataclass
class Run:
    """The processes and files of one row of one system."""

    name: str
    system: System
    row: Row
    scale: Scale
    directory: Path
    server: Server
    programs: dict[str, str]
    workers: dict[int, list[BenchProcess]] = field(default_factory=dict)
    incarnations: list[str] = field(default_factory=list)
    dead: dict[str, int] = field(default_factory=dict)

    @property
    def events(self) -> Path:
        return self.directory / "events"

    def start_worker(self, number: int) -> None:
        """A worker may be several processes; their events are in one directory, new for each start."""
        life = f"worker{number}.{len(self.incarnations)}"
        self.incarnations.append(life)
        (self.events / life).mkdir(parents=True)
        self.workers[number] = [
            self.process(f"{life}.{part}", self.system.worker, number, part, REFEREE_EVENTS=str(self.events / life))
            for part in range(self.system.processes)
        ]

    def restart_worker(self, number: int) -> None:
        """Kills its remaining processes."""
        self.dead[self.life_of(number)] = time.monotonic_ns()
        signal_group(self.workers[number], signal.SIGKILL)
        for each in self.workers[number]:
            each.kill()
        time.sleep(RESTART_AFTER_S)
        self.start_worker(number)

    def supervise(self) -> None:
        """Starts a worker again that has ended by itself, for example because its server was gone. Notes which of its
        processes have ended: some systems start those again on their own.
        """
        for file in self.events.glob("*/*"):
            if not psutil.pid_exists(int(file.name)):
                self.dead.setdefault(f"{file.parent.name}/{file.name}", time.monotonic_ns())
        for number in self.workers:
            try:
                for each in self.workers[number]:
                    each.check()
            except BenchFailedError:
                self.restart_worker(number)

    def life_of(self, number: int) -> str:
        return [life for life in self.incarnations if life.startswith(f"worker{number}.")][-1]

    def publish(self, messages: Iterator[Message], name: str, prefix: str = "") -> BenchProcess:
        plan, sent = self.directory / f"{name}.plan", self.directory / f"{name}.sent"
        write(messages, plan, prefix)
        sent.mkdir()
        return self.process(name, self.system.producer, REFEREE_PLAN=str(plan), REFEREE_SENT=str(sent))

    def process(self, name: str, command: Sequence[str], number: int = 0, part: int = 0, **more: str) -> BenchProcess:
        values = {**self.programs, "url": self.server.url, "worker": number, "part": part}
        home = folder(self.name)
        environment = {
            "PATH": f"{self.programs['bin']}:{os.environ['PATH']}",
            "PYTHONPATH": f"{home}:{HERE / 'client'}",
            "PYTHONUNBUFFERED": "1",
            "REFEREE_CLIENT": str(HERE / "client/referee.cjs"),
            "NODE_PATH": self.programs["modules"],
            "REFEREE_URL": self.server.url,
            "REFEREE_SLOTS": str(SLOTS),
            "REFEREE_LEASE_S": str(self.scale.lease_s),
            "REFEREE_WORKER": str(number),
            "REFEREE_PART": str(part),
            **self.system.environment,
            **more,
        }
        keep = {key: os.environ[key] for key in ("HOME", "LANG", "TMPDIR") if key in os.environ}
        argv = [text.format(home=home, client=HERE / "client", **values) for text in command]
        return BenchProcess(name, argv, self.directory, keep | environment)

    def end(self) -> None:
        for processes in self.workers.values():
            for each in processes:
                each.kill()
        self.server.kill()

    # -- the steps

    def warm_up(self) -> None:
        """Returns when messages of 16 keys ran, and both workers are ready as far as one can see from outside."""
        producer = self.publish(WARM_UP.plan(), "warm-up", WARM)
        finish(producer)
        self._wait(lambda: len(self._done()) >= WARM_UP.messages, READY_WITHIN_S, "run the messages of the warm-up")
        time.sleep(LINGER_S)

    def wait_for_first(self) -> None:
        self._wait(lambda: any(not each.key.startswith(WARM) for each in self.read()), READY_WITHIN_S, "begin")

    def wait_for_end(self, sent: dict[Name, Sent]) -> bool:
        """True if the row is complete, or nothing happened for long; False if its time was up."""
        wanted = {name for name in sent if not (self.row.special_fails and name[0] == SPECIAL)}
        until_s = time.monotonic() + self.scale.limit_s
        tail, seen_s = Tail(self.events), time.monotonic()
        while time.monotonic() < until_s:
            self.supervise()
            if tail.has_grown():
                seen_s = time.monotonic()
            elif time.monotonic() - seen_s > self.scale.patience_s:
                return True
            is_quiet = not self.row.special_fails or time.monotonic() - seen_s > QUIET_S
            if is_quiet and tail.ends >= len(wanted) and wanted <= self._done():
                time.sleep(LINGER_S)
                return True
            time.sleep(0.25)
        return False

    def make_fault(self) -> Trouble | None:
        """The fault at its time after the first begin, and the restart, or the thaw after two leases."""
        if not self.row.fault:
            return None
        time.sleep(self.row.fault_at_s)
        if self.row.fault == "kill server":
            at_ns = time.monotonic_ns()
            self.server.kill()
            time.sleep(RESTART_AFTER_S)
            self.server.start()
            return Trouble(at_ns, tuple(self.incarnations))
        struck = (self.life_of(0),)
        self._wait_until_busy(self.events / struck[0])
        at_ns = time.monotonic_ns()
        if self.row.fault == "kill worker":
            self.restart_worker(0)
            return Trouble(at_ns, struck)
        signal_group(self.workers[0], signal.SIGSTOP)
        time.sleep(2 * self.scale.lease_s)
        signal_group(self.workers[0], signal.SIGCONT)
        return Trouble(at_ns, struck)

    def _wait_until_busy(self, events: Path) -> None:
        """Returns while a message runs in this worker: a fault between two of them would show nothing."""
        until_s = time.monotonic() + BUSY_WITHIN_S
        while time.monotonic() < until_s:
            last = [text[-1] for file in events.iterdir() if (text := file.read_text().splitlines())]
            if any(line.startswith("B ") for line in last):
                return

    def read(self) -> list[Event]:
        return judge.read_events(self.events)

    def _done(self) -> set[Name]:
        return {(each.key, each.number) for each in self.read() if each.kind == "E"}

    def _wait(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        until_s = time.monotonic() + within_s
        while not condition():
            self.supervise()
            if time.monotonic() > until_s:
                logs = [
                    f"{file.name}: {file.read_text(errors='replace')[-400:]}" for file in self.directory.glob("w*.log")
                ]
                raise BenchFailedError(
                    f"{self.system.title} did not {what} within {within_s:.0f} s. {' / '.join(logs)}"
                )
            time.sleep(0.1)


class Tail:
    """Counts the ends as the files grow. Parses each line once, so a million takes little time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: dict[Path, int] = {}
        self.ends = 0

    def has_grown(self) -> bool:
        grown = False
        for file in self._directory.glob("*/*"):
            with file.open("rb") as lines:
                lines.seek(self._offsets.get(file, 0))
                new = lines.read()
            self._offsets[file] = self._offsets.get(file, 0) + len(new)
            self.ends += new.count(b"E ")
            grown = grown or bool(new)
        return grown


def signal_group(processes: list[BenchProcess], number: signal.Signals) -> None:
    for each in processes:
        try:
            os.killpg(each.pid, number)
        except ProcessLookupError:  # it has ended by itself
            continue


def finish(producer: BenchProcess) -> None:
    """Waits until all is acknowledged. Raises BenchFailedError."""
    if code := producer.wait(PUBLISHED_WITHIN_S):
        raise BenchFailedError(
            f"{producer.name} ended with code {code}: {producer.log.read_text(errors='replace')[-600:]}"
        )


@contextmanager
def started(name: str, system: System, row: Row, scale: Scale) -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix=f"referee-{name}-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        directory.chmod(0o755)  # PostgreSQL runs as another user if we are root
        run = Run(name, system, row, scale, directory, system.server(directory, scale.lease_s), programs(name, system))
        run.events.mkdir()
        try:
            run.server.start()
            if system.setup:
                finish(run.process("setup", system.setup))
            yield run
        finally:
            run.end()


def measure(name: str, system: System, row: Row, scale: Scale) -> dict[str, Any]:
    """The verdict and the figures of one row, as stored in the data file."""
    with started(name, system, row, scale) as run:
        if row.per_second:
            for number in range(WORKERS):
                run.start_worker(number)
            run.warm_up()
            producer = run.publish(row.plan(), "row")
        else:
            finish(run.publish(row.plan(), "row"))
            for number in range(WORKERS):
                run.start_worker(number)
        run.wait_for_first()
        trouble = run.make_fault()
        if row.per_second:
            finish(producer)
        sent = judge.read_sent(run.directory / "row.sent")
        complete = run.wait_for_end(sent)
        return _outcome(run, sent, trouble, complete)


def _outcome(run: Run, sent: dict[Name, Sent], trouble: Trouble | None, complete: bool) -> dict[str, Any]:
    row, special = run.row, SPECIAL if run.row.has_special else ""
    events = [each for each in run.read() if not each.key.startswith(WARM)]
    verdict = judge.judge(sent, events, SPECIAL if row.special_fails else "", run.dead)
    counts = {key: value if isinstance(value, int) else len(value) for key, value in asdict(verdict).items()}
    outcome = {
        **counts,
        "words": str(verdict),
        "tries": verdict.tries,
        "complete": complete,
        "server": run.server.about,
    }
    outcome |= judge.figures(sent, events, special)
    if not complete:  # the missing messages may still arrive
        outcome["unfinished"], outcome["lost"] = outcome["lost"], 0
    if trouble:
        times = judge.continued_s(events, trouble, verdict.lost)
        outcome["continued_s"] = [None if each is None else round(each, 3) for each in times]
    return outcome
