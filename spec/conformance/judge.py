"""Asks TLC whether the calls of a recorded run are a behaviour of spec/Trace.tla, and reports what it covers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from spec.conformance.events import Event, NotSpecifiedError, Script, events_of, is_write, script_in, verb_of
from spec.conformance.mirror import Mirror
from spec.conformance.monitor import Call, calls_in, loads_in
from spec.conformance.pieces import Piece, both_states, stuck_at

#: TLC copies the whole state in each step, so a long run is judged in pieces.
PIECE_EVENTS = 1500
AT_ONCE = 2
LINES_BEFORE, LINE = 7, 300
EXPECTED_COVERAGE = 0.9

#: Every action of Trace.tla; `stale` ones are calls whose fence was old.
ACTIONS = (
    *("append", "seen", "enter", "malformed", "lease", "killer", "settle", "release", "died", "delay", "bury", "renew"),
    *("expire", "due", "reconcile", "replay", "drop", "stale settle", "stale renew"),
    *("group", "join", "stop", "shield", "unshield", "take", "gather", "interrupt", "set", "cancel", "fire"),
    *("hold", "unhold", "pause", "resume"),
)


@dataclass
class Report:
    """`divergence`: the text of the first one, empty if there is none."""

    calls: int = 0
    segments: int = 0
    covered: Counter[str] = field(default_factory=Counter)
    not_specified: Counter[str] = field(default_factory=Counter)
    divergence: str = ""
    unused: tuple[str, ...] = ()

    @property
    def coverage(self) -> float:
        used = [each for each in ACTIONS if each not in self.unused]
        return sum(1 for each in used if self.covered[each]) / len(used)

    def lines(self) -> list[str]:
        missing = [each for each in ACTIONS if not self.covered[each] and each not in self.unused]
        judged = self.calls - self.not_specified.total()
        lines = [
            f"conformance: {judged:,} of {self.calls:,} calls judged by the specification, in {self.segments} "
            f"segments, {self.covered.total():,} events: {'a DIVERGENCE' if self.divergence else 'no divergence'}",
            f"conformance: {self.coverage:.0%} of its actions covered; not: {', '.join(missing) or 'none'}",
        ]
        if self.unused:
            lines.append(f"conformance: no part of this run uses: {', '.join(self.unused)}")
        if self.coverage < EXPECTED_COVERAGE:
            lines.append(
                f"conformance: less than {EXPECTED_COVERAGE:.0%} of the actions are covered: no proof of the others"
            )
        if self.not_specified:
            lines.append("conformance: not in the specification: " + _counts(self.not_specified))
        return [*lines, self.divergence] if self.divergence else lines


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{what} ({count:,})" for what, count in counter.most_common())


def judge(folder: Path, unused: tuple[str, ...] = ()) -> Report:
    """Judges the segments of a folder, up to the first divergence. `unused`: actions that no part of the run uses."""
    report, scripts = Report(unused=unused), _scripts(folder)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for snapshot in sorted(folder.glob("*.snapshot")):
            segment = _Segment(snapshot, scripts, report)
            report.segments += 1
            asked = [(piece, pool.submit(stuck_at, piece)) for piece in segment.pieces()]
            for piece, answer in asked:
                stuck = answer.result()
                _count(piece, stuck, report)
                if stuck < len(piece.steps):
                    pool.shutdown(wait=False, cancel_futures=True)
                    report.divergence = segment.explained(piece, stuck)
                    return report
    return report


def _scripts(folder: Path) -> dict[str, Script]:
    calls = chain.from_iterable(loads_in(each) for each in sorted(folder.glob("*.monitor")))
    return dict(filter(None, map(script_in, calls)))


class _Segment:
    """The calls of a segment, one after the other."""

    def __init__(self, snapshot: Path, scripts: dict[str, Script], report: Report) -> None:
        self._mirror = Mirror.of(json.loads(snapshot.read_text()))
        self._path, self._scripts, self._report = snapshot.with_suffix(".monitor"), scripts, report
        if first := next(calls_in(self._path), None):
            self._mirror.changed_heads(first.at_s * 1000)
        self._piece = Piece(self._mirror)

    def pieces(self) -> Iterator[Piece]:
        for number, call in enumerate(calls_in(self._path)):
            verb = verb_of(call, self._scripts)
            if verb is None and not is_write(call):
                continue
            self._report.calls += 1
            try:
                events = events_of(verb, self._mirror) if verb else []
            except NotSpecifiedError as error:
                self._report.not_specified[str(error)] += 1
                events = [Event("adopt")]
            max_deaths = int(verb.fixed.get("max_deaths", self._piece.max_deaths)) if verb else self._piece.max_deaths
            if len(self._piece.steps) >= PIECE_EVENTS or not self._piece.takes(events, max_deaths):
                yield from self._cut()
            self._piece.max_deaths = max_deaths
            self._piece.add(number, call, events)
        yield from self._cut()

    def _cut(self) -> Iterator[Piece]:
        if self._piece.steps:
            yield self._piece.closed()
        self._piece = Piece(self._mirror, self._piece.calls[-LINES_BEFORE:])

    def explained(self, piece: Piece, stuck: int) -> str:
        """The first event that is not a step, the commands before it, and both states."""
        step = piece.steps[stuck]
        before = [(number, call) for number, call in piece.calls if number <= step.at][-LINES_BEFORE:]
        lines = [f"conformance: call {step.at} of {self._path.name} is not a step of the specification"]
        lines += ["The commands before it, and it:", *(f"  {n}  {_line(call, self._scripts)}" for n, call in before)]
        lines.append("The event: " + " ".join(filter(None, [step.event.what, step.event.message, step.event.fence])))
        if not step.event.is_allowed:
            lines.append("It is too early for it, or a message with a lower number is still held")
        return "\n".join([*lines, *both_states(piece, stuck)])


def _line(call: Call, scripts: dict[str, Script]) -> str:
    verb = verb_of(call, scripts)
    if verb is None:
        return f"{call.at_s:.6f} {' '.join(call.arguments)}"[:LINE]
    fixed = " ".join(f"{name}={value}" for name, value in verb.fixed.items())
    return f"{call.at_s:.6f} {verb.name} {fixed} {' '.join(' '.join(row) for row in verb.rows)}"[:LINE].replace(
        "\n", "\\n"
    )


def _count(piece: Piece, stuck: int, report: Report) -> None:
    for step in piece.steps[:stuck]:
        report.covered[step.covers] += 1
    report.covered.pop("adopt", None)
