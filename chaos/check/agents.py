"""Checks the agents: each question is continued once, each addition is in the runs of one update, nothing happens after
a stop, and each order is confirmed, by a message that shows the whole text. Payments that came twice are judged as
messages (repeated_messages.py). Pure functions.

An update that was terminated and is buried leaves its question open, until the timeout continues it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.check.stale_calls import ARRIVES_WITHIN_S
from chaos.check.violation import Violation
from chaos.evidence.aof import MessageId
from chaos.evidence.records import Effect, Evidence, HandlerRun
from chaos.systems.agents import CONFIRMATION, KIND, QUESTION, TOO_LATE, confirmation
from chaos.systems.users import Conversation


def wrong_questions(evidence: Evidence) -> list[Violation]:
    """Questions that were continued twice, or never, although nobody has stopped the agent; or are still open."""
    runs, messages = _by_update(evidence), evidence.messages(KIND)
    found = [Violation(f"the question {each} is still open", ()) for each in evidence.open_questions]
    for each in evidence.conversations:
        problem = _problem(each, runs.get(each.order, []), messages, evidence)
        if problem:
            found.append(Violation(f"the question of {each.order} {problem}", (each.order,)))
    return found


def _problem(each: Conversation, runs: list[HandlerRun], messages: Counter[str], evidence: Evidence) -> str:
    by = _continued_by(runs, evidence)
    if len(by) > 1:
        return f"was continued by {', '.join(map(str, sorted(by, key=str)))}"
    if each.stop is not None or not evidence.terminated.isdisjoint(each.updates):
        return ""
    if f"{each.order}.{QUESTION}" not in messages:
        return "was never asked"
    return "" if by and f"{each.order}.{CONFIRMATION}" in messages else "was never continued to the end"


def _continued_by(runs: list[HandlerRun], evidence: Evidence) -> set[MessageId]:
    """The messages with which it was continued: usually one, which may have run several times."""
    ended = {run.id for run in runs if run.answer and run.outcome == "end" and run.end_s <= run.valid_until_s}
    return {message for message in ended if message not in evidence.terminated}


def not_whole(evidence: Evidence) -> list[Violation]:
    """Confirmations that no message shows whole, although nobody has stopped the agent."""
    shown = set(evidence.shown)
    return [
        Violation(f"no message shows the whole confirmation of {each.order}", (each.order,))
        for each in evidence.conversations
        if each.stop is None
        and evidence.terminated.isdisjoint(each.updates)
        and (each.order, "".join(confirmation(each.order))) not in shown
    ]


def after_stops(evidence: Evidence) -> list[Violation]:
    """Stops whose `on_stop` has not run; messages and payments of an agent after it; and runs of a stopped update."""
    runs = _by_update(evidence)
    effects: dict[int, list[Effect]] = {}
    for effect in (*evidence.effects, *evidence.edits):
        effects.setdefault(effect.update, []).append(effect)
    found = list(_run_again(evidence))
    for each in evidence.conversations:
        if each.stop is None or each.stop in evidence.terminated:
            continue
        started_s = [run.start_s for run in runs.get(each.stop, []) if not run.is_late]
        if not any(run.outcome == "end" for run in runs.get(each.stop, [])):
            found.append(Violation(f"on_stop has not run for {each.stop}", (each.stop,)))
        for effect in effects.get(each.order, []):
            if started_s and effect.at_s > min(started_s) + ARRIVES_WITHIN_S:
                text = f"{effect.text} took effect at {effect.at_s:.3f}, after the stop {each.stop}"
                found.append(Violation(text, (each.order, each.stop)))
    return found


def _run_again(evidence: Evidence) -> Iterator[Violation]:
    stopped = evidence.book.stopped if evidence.book else {}
    for run in evidence.others:
        if run.id in stopped and int(run.fence or 0) > stopped[run.id]:
            yield Violation(f"{run.id} was stopped, and ran again at {run.start_s:.3f}", (run.update,))


def wrong_additions(evidence: Evidence) -> list[Violation]:
    """Additions in the runs of two updates; and in none, although nobody has stopped the agent."""
    owners = _owners(evidence)
    found = []
    for each in evidence.conversations:
        is_excused = each.stop is not None or not evidence.terminated.isdisjoint(each.updates)
        for addition in each.additions:
            by = owners.get(addition, set())
            if len(by) > 1 or not (by or is_excused):
                text = f"the addition {addition} was in the runs of {sorted(by)}"
                found.append(Violation(text, (each.order, addition)))
    return found


def taken(evidence: Evidence) -> int:
    """How many additions a run in progress took."""
    return len({update for run in evidence.others for update in run.took})


def _owners(evidence: Evidence) -> dict[int, set[int]]:
    """Of each update: the first updates of the runs that had or took it."""
    found: dict[int, set[int]] = {}
    for run in evidence.others:
        for update in () if run.is_late else (*run.had, *run.took):
            found.setdefault(update, set()).add(run.update)
    return found


def answers(evidence: Evidence) -> Counter[str]:
    """How the questions ended: answered, timed out, or closed by a stop or a burial."""
    runs = _by_update(evidence)
    ends = Counter[str]()
    for each in evidence.conversations:
        continued = [run for run in runs.get(each.order, []) if run.answer and run.outcome == "end"]
        kind = "timed out" if any(run.answer == TOO_LATE for run in continued) else "answered"
        ends[kind if continued else "closed"] += 1
    return ends


def _by_update(evidence: Evidence) -> dict[int, list[HandlerRun]]:
    found: dict[int, list[HandlerRun]] = {}
    for run in evidence.others:
        found.setdefault(run.update, []).append(run)
    return found
