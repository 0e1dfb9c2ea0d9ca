"""The report of a chaos run: a table in Markdown, and the shortest excerpt that shows a violation."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from chaos.check.checker import Judgement
from chaos.check.violation import Violation
from chaos.evidence.records import Evidence

SHOWN = 10
EXCERPT_LINES = 40


def table(columns: Sequence[tuple[str, Evidence, Judgement]]) -> str:
    """One row for each figure, one column for each system."""
    cells = [_cells(evidence, verdict) for _, evidence, verdict in columns]
    rows = [["", *(name for name, _, _ in columns)], ["---"] * (len(columns) + 1)]
    rows += [[figure, *(column[figure] for column in cells)] for figure in cells[0]]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows)


def _cells(evidence: Evidence, verdict: Judgement) -> dict[str, str]:
    return {
        "faults; updates": f"{len(evidence.faults)}; {len(evidence.expected):,}",
        **{kind: _count(kind, len(violations), evidence) for kind, violations in verdict.violations.items()},
        "sent twice, where a call was in flight at a fault": _counts(verdict.twice_in_flight),
        "their faults": _counts(verdict.met_by),
        "finished more than once": str(verdict.duplicates),
        "started late, without effect": str(verdict.late_starts),
        "ran with others; interrupted": f"{verdict.in_groups:,}; {verdict.interrupted:,}",
        "timers; late p50, p99, max": _timers(verdict),
        "questions": _counts(verdict.answers),
        "stops; updates that they ended": f"{verdict.stops}; {verdict.stopped}",
        "steps paid": str(verdict.steps),
        "additions; taken by a run in progress": f"{verdict.additions}; {verdict.taken}",
        "edits of streams": f"{verdict.edits:,}",
        "orders; most at a time": _orders(verdict),
        "schedules fired": ", ".join(f"{name}: {count:,}" for name, count in verdict.fired.items()) or "–",
        "broadcasts; recipients": _broadcasts(evidence),
        "recovery after a kill, median; max": _recovery(verdict.recoveries_s),
    }


def _count(kind: str, number: int, evidence: Evidence) -> str:
    """A dash if the system does not have this feature."""
    has = {"innocents buried": evidence.buried is not None, "sessions wrong": evidence.sessions is not None}
    return str(number) if has.get(kind, True) else "–"


def _timers(verdict: Judgement) -> str:
    late_s = verdict.timers_late_s
    if not late_s:
        return "–"
    p50, p99 = (late_s[int(len(late_s) * share)] for share in (0.5, 0.99))
    return f"{len(late_s):,}; {p50:.3f} s, {p99:.1f} s, {late_s[-1]:.1f} s"


def _orders(verdict: Judgement) -> str:
    return f"{verdict.orders}; " + (", ".join(f"{key} {most}" for key, most in verdict.at_a_time.items()) or "–")


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "0"


def _broadcasts(evidence: Evidence) -> str:
    results = sum((Counter(each.counts) for each in evidence.broadcasts.values()), Counter[str]())
    if not results:
        return "–"
    return f"{len(evidence.broadcasts)}; " + ", ".join(f"{count:,} {result}" for result, count in results.items())


def _recovery(times_s: Sequence[float]) -> str:
    if not times_s:
        return "–"
    return f"{statistics.median(times_s):.1f} s; {max(times_s):.1f} s ({len(times_s)} kills)"


def complaints(verdict: Judgement, evidence: Evidence) -> str:
    """The first violations of each kind, and the shortest excerpt that shows one."""
    lines = []
    for kind, violations in verdict.violations.items():
        lines += [f"{kind}: {violation}" for violation in violations[:SHOWN]]
    excerpts = [excerpt(violation, evidence) for found in verdict.violations.values() for violation in found[:SHOWN]]
    shortest = min(filter(None, excerpts), key=len, default=[])
    return "\n".join([*lines, "", *shortest[:EXCERPT_LINES]])


def excerpt(violation: Violation, evidence: Evidence) -> list[str]:
    """The history of an violation's updates in order of time, with the faults meanwhile."""
    lines: list[tuple[float, str]] = []
    updates = {update for update in violation.updates if update}
    for run in evidence.all_runs:
        if run.update in updates or run.id in updates:
            who = f"{run.message or f'update {run.update}'}, run {run.name}"
            lines.append((run.start_s, f"{who}: starts, on {' '.join(run.keys)}, fence {run.fence}"))
            lines += [(c.began_s, f"{who}: calls {c.number}, {c.outcome}") for c in run.calls.values()]
            lines.append((run.end_s, f"{who}: {run.outcome}"))
    ids = {*violation.updates, *(run.message for run in evidence.others if run.update in updates)}
    for (message, fence), hold in (evidence.holds or {}).items():
        if message in ids:
            lines.append((hold.from_s, f"{message}: handed to {hold.holder} with fence {fence}"))
            lines.append((hold.until_s, f"{message}: fence {fence} is taken back"))
    for effect in (*evidence.effects, *evidence.edits):
        if effect.update in updates:
            lines.append(
                (effect.at_s, f"{effect.text or effect.update}: Telegram has its {effect.number} from run {effect.run}")
            )
    times = [at_s for at_s, _ in lines if at_s < float("inf")]
    if times:
        meanwhile = [fault for fault in evidence.faults if min(times) - fault.for_s - 1 < fault.at_s < max(times)]
        lines += [
            (b.at_s, f"fault: {b.what} {b.target} {f'for {b.for_s:.1f} s' if b.for_s else ''}") for b in meanwhile
        ]
    return [f"  {at_s:.3f}  {text}" if at_s < float("inf") else f"  never  {text}" for at_s, text in sorted(lines)]
