"""The judge: makes a verdict from the acknowledgements and the files of the handlers. Pure, except for `read`.

* lost: acknowledged, and no attempt of it ended (of a message that always fails: none began)
* twice: ends beyond the first
* out of order: begins after a later message of the key has begun
* overlapping: attempts that are still open, in a worker that is not dead, when another of their key begins
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.measure.figures import percentile

#: The rate is that between these shares of the ends: before, workers start; after, the last keys drain.
FROM, TO = 0.10, 0.95
#: Each fault is shown with its first messages.
SHOWN = 5

Name = tuple[str, int]


class Event(NamedTuple):
    """`process` is WORKER/PID; a worker that is started again has another name."""

    at_ns: int
    kind: str
    key: str
    number: int
    process: str


class Sent(NamedTuple):
    began_ns: int
    acknowledged_ns: int


class Trouble(NamedTuple):
    """A fault that strikes the system at `at_ns`, and the workers that it hits."""

    at_ns: int
    struck: tuple[str, ...]


@dataclass
class Verdict:
    sent: int
    done: int
    lost: list[Name] = field(default_factory=list)
    twice: list[Name] = field(default_factory=list)
    out_of_order: list[Name] = field(default_factory=list)
    overlapping: list[Name] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.twice or self.out_of_order or self.overlapping)

    def __str__(self) -> str:
        """`1 lost (key3 17), 2 out of order (key1 4, key1 5)`, or `none lost, in order, one at a time`."""
        found = []
        for words, names in (
            ("lost", self.lost),
            ("twice", self.twice),
            ("out of order", self.out_of_order),
            ("overlapping", self.overlapping),
        ):
            if names:
                shown = ", ".join(f"{key} {number}" for key, number in names[:SHOWN])
                found.append(f"{len(names):,} {words} ({shown}{', …' * (len(names) > SHOWN)})")
        return ", ".join(found) or "none lost, in order, one at a time"


def judge(
    sent: Mapping[Name, Sent], events: Iterable[Event], failing: str = "", dead: Mapping[str, int] | None = None
) -> Verdict:
    """`failing` is the key whose messages always fail; `dead` says since when a worker, or one of its
    processes, is. Messages that nobody acknowledged count too.
    """
    by_key: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events):
        by_key[event.key].append(event)
    verdict = Verdict(len(sent), 0)
    ended: dict[Name, int] = defaultdict(int)
    begun: dict[Name, int] = defaultdict(int)
    for key in by_key:
        _judge_key(by_key[key], dead or {}, verdict, begun, ended)
    for name in sorted(sent):
        tried = begun if name[0] == failing else ended
        if not tried[name]:
            verdict.lost.append(name)
    verdict.done = sum(1 for name in sent if ended[name])
    verdict.twice = sorted(name for name, times in ended.items() for _ in range(times - 1))
    verdict.tries = [begun[name] for name in sorted(sent) if name[0] == failing]
    return verdict


def _judge_key(
    events: Sequence[Event], dead: Mapping[str, int], verdict: Verdict, begun: dict[Name, int], ended: dict[Name, int]
) -> None:
    latest, running, overlapped = -1, list[Event](), set[Event]()
    for event in events:
        name = (event.key, event.number)
        if event.kind == "B":
            running = [each for each in running if not _is_dead(each.process, event.at_ns, dead)]
            verdict.overlapping += [(event.key, each.number) for each in running if each not in overlapped]
            overlapped.update(running)
            if event.number < latest:
                verdict.out_of_order.append(name)
            latest = max(latest, event.number)
            begun[name] += 1
            running.append(event)
        else:
            begin = next(
                (each for each in running if (each.process, each.number) == (event.process, event.number)), None
            )
            if begin:
                running.remove(begin)
            ended[name] += event.kind == "E"


def _is_dead(process: str, at_ns: int, dead: Mapping[str, int]) -> bool:
    since_ns = [dead[name] for name in (process, process.partition("/")[0]) if name in dead]
    return bool(since_ns) and at_ns >= min(since_ns)


# -- times


def rate(events: Iterable[Event]) -> float | None:
    """Ends per second between 10 % and 95 % of them; None if they are too few to tell."""
    moments = sorted(event.at_ns for event in events if event.kind == "E")
    first, last = int(len(moments) * FROM), int(len(moments) * TO) - 1
    if last <= first or moments[last] == moments[first]:
        return None
    return (last - first) * 1e9 / (moments[last] - moments[first])


def waits_ms(sent: Mapping[Name, Sent], events: Iterable[Event], special: str = "") -> list[float]:
    """From the start of the publication of a message to its first begin, without those of the special key."""
    first: dict[Name, int] = {}
    for event in sorted(events):
        if event.kind == "B" and event.key != special:
            first.setdefault((event.key, event.number), event.at_ns)
    return [(first[name] - at.began_ns) / 1e6 for name, at in sent.items() if name in first]


def behind_at_half(sent: Mapping[Name, Sent], events: Iterable[Event]) -> int:
    """Keys of which nothing is done when half of all messages are."""
    ends = sorted(event for event in events if event.kind == "E")
    reached = {event.key for event in ends[: len(ends) // 2 + 1]}
    return len({key for key, _ in sent} - reached)


def continued_s(events: Iterable[Event], trouble: Trouble, lost: Iterable[Name]) -> list[float | None]:
    """For each key that ran in a struck worker: the time until it begins again, anywhere. None: it never did, and
    misses a message. Keys that had nothing left to begin are left out.
    """
    ordered = sorted(events)
    running: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for event in ordered:
        if event.at_ns >= trouble.at_ns or event.process.partition("/")[0] not in trouble.struck:
            continue
        attempts, attempt = running[event.key], (event.process, event.number)
        attempts.add(attempt) if event.kind == "B" else attempts.discard(attempt)
    again: dict[str, float] = {}
    for event in ordered:
        if event.kind == "B" and event.at_ns >= trouble.at_ns:
            again.setdefault(event.key, (event.at_ns - trouble.at_ns) / 1e9)
    stuck = {key for key, _ in lost}
    return [again.get(key) for key, attempts in running.items() if attempts and (key in again or key in stuck)]


def figures(sent: Mapping[Name, Sent], events: Sequence[Event], special: str) -> dict[str, float | None]:
    waits = waits_ms(sent, events, special)
    return {
        "rate": rate(events),
        "median_ms": median(waits) if waits else None,
        "acknowledged_ms": median((each.acknowledged_ns - each.began_ns) / 1e6 for each in sent.values()),
        "p99_ms": percentile(waits, 99) if waits else None,
        "longest_ms": max(waits, default=None),
        "behind_at_half": behind_at_half(sent, events),
    }


# -- files


def read_events(directory: Path) -> list[Event]:
    """DIRECTORY/WORKER/PID. A last line that a kill cut off is skipped."""
    return [
        Event(int(at), kind, key, int(number), f"{file.parent.name}/{file.name}")
        for file in directory.glob("*/*")
        for kind, key, number, at in _fields(file)
    ]


def read_sent(directory: Path) -> dict[Name, Sent]:
    return {
        (key, int(number)): Sent(int(began), int(acknowledged))
        for file in directory.glob("*")
        for key, number, began, acknowledged in _fields(file)
    }


def _fields(file: Path) -> Iterable[list[str]]:
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n") and len(fields := line.split()) == 4:
            yield fields
