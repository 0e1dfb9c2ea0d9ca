"""Questions that are continued twice or never, effects after a stop, and payments that come twice are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.check.checker import check
from chaos.evidence.aof import FOREVER, Book, Hold
from chaos.evidence.records import (
    Effect,
    Evidence,
    InjectedFault,
    Record,
    edits_in,
    effects_in,
    payments_in,
    runs_in,
    shown_in,
)
from chaos.systems.agents import CONFIRMATION, confirmation
from chaos.systems.users import Conversation

ORDER, PRESS, STOP = 1, 2, 3


class Talk:
    """The history of one agent, whose order is the update 1, and its answer the update 2."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.effects: list[Effect] = []
        self.edits: list[Effect] = []
        self.shown: list[tuple[int, str]] = []
        self.faults: list[InjectedFault] = []
        self.book = Book()
        self.buried: set[int] = set()
        self._runs = 0

    def run(
        self,
        message: int | str,
        from_s: float,
        to_s: float | None = None,
        *,
        of: int = ORDER,
        answer: str = "",
        end: str = "end",
        says: tuple[int, ...] = (),
        pays: str = "",
        shows: str | None = None,
        edits_s: float | None = None,
        taken_back_s: float = FOREVER,
        noted: bool = True,
        had: tuple[int, ...] = (),
        took: tuple[int, ...] = (),
    ) -> Talk:
        """One run, of the message that ran it. `says`: the numbers of its messages; `shows`: the text of its stream at
        the end, by default the whole one; `edits_s`: the time of its last edit; `pays`: the name of its step.
        `had`: the additions with which it began; `took`: the others.
        """
        self._runs += 1
        name, fence = str(self._runs), f"{from_s * 1e6:.0f}"
        self.book.holds[message, fence] = Hold(message, fence, "here:1:1", taken_back_s)

        def write(what: str, at_s: float, **more: Any) -> None:
            self.records.append({"at_s": at_s, "id": of, "run": name, "what": what, **more})

        write("start", from_s, keys=["chat:5001"], pid=1, fence=fence, message=str(message), had=[of, *had])
        for update in took:
            write("took", from_s, update=update)
        for number in says:
            write("call", from_s, number=number)
            write("called", from_s, number=number)
            self.book.noted.add((message, number, fence))
            self.effects.append(Effect(from_s, of, number, name, fence, text=f"agent {of}.{number}"))
        if CONFIRMATION in says:
            self.shown.append((of, "".join(confirmation(of)) if shows is None else shows))
        if edits_s is not None:
            self.edits.append(Effect(edits_s, of, "edit", name, fence, text=f"agent {of}.{CONFIRMATION}"))
        if pays:
            write("paid", from_s, number=f"step/{pays}/1", key=f"1:1/{pays}/1")
            if noted:
                write("called", from_s, number=f"step/{pays}/1")
                self.book.noted.add((message, f"step/{pays}/1", fence))
        if answer:
            write("continued", from_s, answer=answer)
        if to_s is not None:
            write(end, to_s)
        return self

    def asks(self) -> Talk:
        return self.run(ORDER, 1.0, 1.5, end="raise", says=(0, 1), pays="search")

    def evidence(self, *, stop: int | None = None, additions: tuple[int, ...] = ()) -> Evidence:
        runs = runs_in(self.records, self.faults, self.book.holds, 10.0)
        return Evidence(
            runs=[],
            others=runs,
            effects=[*self.effects, *payments_in(self.records, runs)],
            edits=self.edits,
            shown=self.shown,
            faults=self.faults,
            expected=(),
            buried=frozenset(self.buried),
            book=self.book,
            sessions=None,
            parts={1: "prefork"},
            conversations=[Conversation(5_001, ORDER, stop, [ORDER, PRESS, *([stop] if stop else [])], [*additions])],
        )

    def violations(self, *, stop: int | None = None, additions: tuple[int, ...] = ()) -> dict[str, list[str]]:
        found = check(self.evidence(stop=stop, additions=additions)).violations
        return {kind: [str(each) for each in violations] for kind, violations in found.items() if violations}


def answered() -> Talk:
    return Talk().asks().run(PRESS, 2.0, 3.0, answer="Yes", says=(2,), pays="charge")


def test_a_question_that_is_continued_once() -> None:
    assert answered().violations() == {}
    verdict = check(answered().evidence())
    assert (verdict.answers, verdict.steps, verdict.stops) == ({"answered": 1}, 2, 0)
    late = Talk().asks().run("timer:5", 9.0, 10.0, answer="too late", says=(2,), pays="charge")
    assert late.violations() == {}
    assert check(late.evidence()).answers == {"timed out": 1}


def test_a_rerun_of_the_answer_is_not_a_second_continuation() -> None:
    again = Talk().asks().run(PRESS, 2.0, 2.5, answer="Yes", end="raise", pays="charge", taken_back_s=2.6)
    assert again.run(PRESS, 3.0, 4.0, answer="Yes", says=(2,)).violations() == {}


@pytest.mark.parametrize(
    ("talk", "problem"),
    [
        (answered().run("timer:5", 9.0, 10.0, answer="too late"), "was continued by 2, timer:5"),
        (Talk().asks(), "was never continued to the end"),
        (Talk().asks().run(PRESS, 2.0, 3.0, answer="Yes", pays="charge"), "was never continued to the end"),
        # Its run ended after its lease
        (Talk().asks().run(PRESS, 2.0, 3.0, answer="Yes", taken_back_s=2.9), "was never continued to the end"),
        (Talk().run(ORDER, 1.0, pays="search"), "was never asked"),
    ],
)
def test_questions_that_were_not_continued_once(talk: Talk, problem: str) -> None:
    assert talk.violations()["questions not continued once"] == [f"the question of 1 {problem}"]


def test_a_question_that_is_still_open() -> None:
    found = check(replace(answered().evidence(), open_questions=["asked:1:1-1"])).violations
    assert [str(each) for each in found["questions not continued once"]] == ["the question asked:1:1-1 is still open"]


def test_a_terminated_answer_leaves_the_question_to_the_timeout() -> None:
    talk = answered().run("timer:5", 9.0, 10.0, answer="too late", says=())
    talk.faults.append(InjectedFault(2.5, "terminate", "updates", updates=(PRESS,)))
    talk.buried.add(PRESS)
    assert talk.violations() == {}


def test_a_step_of_a_buried_answer_that_the_next_one_pays_again_is_found() -> None:
    talk = Talk().asks().run(PRESS, 2.0, 2.5, answer="Yes", end="raise", pays="charge", taken_back_s=2.6)
    talk.run("timer:5", 9.0, 10.0, answer="too late", pays="charge", says=(2,))
    talk.faults.append(InjectedFault(2.5, "terminate", "updates", updates=(PRESS,)))
    talk.buried.add(PRESS)
    assert list(talk.violations()) == ["sent twice without need"]


def stopped() -> Talk:
    """An answer that continues the agent is stopped."""
    talk = Talk().asks().run(PRESS, 2.0, 2.5, answer="Yes", end="raise", pays="charge", taken_back_s=2.4)
    talk.book.stopped[PRESS] = 2_000_000
    return talk


def test_a_stop_closes_the_question() -> None:
    talk = stopped().run(STOP, 3.0, 3.5, of=STOP, says=(0,))
    assert talk.violations(stop=STOP) == {}
    verdict = check(talk.evidence(stop=STOP))
    assert (verdict.answers, verdict.stops, verdict.stopped) == ({"closed": 1}, 1, 1)


def test_effects_after_a_stop_are_found() -> None:
    talk = stopped().run(STOP, 3.0, 3.5, of=STOP, says=(0,)).run("timer:5", 4.0, 5.0, answer="too late", says=(2,))
    assert talk.violations(stop=STOP)["effects after a stop"] == ["agent 1.2 took effect at 4.000, after the stop 3"]
    paid = stopped().run(STOP, 3.0, 3.5, of=STOP).run("timer:5", 4.0, 5.0, answer="too late", pays="charge")
    found = paid.violations(stop=STOP)["effects after a stop"]
    assert found == ["step 1:1/charge/1 took effect at 4.000, after the stop 3"]


def test_a_stream_that_is_not_whole_is_found_unless_its_agent_was_stopped() -> None:
    half = Talk().asks().run(PRESS, 2.0, 3.0, answer="Yes", says=(2,), pays="charge", shows="agent 1.2 is confirmed,")
    assert half.violations() == {"streams not whole": ["no message shows the whole confirmation of 1"]}
    half.run(STOP, 3.0, 3.5, of=STOP)
    assert half.violations(stop=STOP) == {}


def test_edits_of_stale_holders_and_after_a_stop_are_found() -> None:
    talk = Talk().asks().run(PRESS, 2.0, 6.0, answer="Yes", says=(2,), pays="charge", edits_s=5.0, taken_back_s=4.0)
    talk.run(PRESS, 4.1, 6.0, answer="Yes")
    found = talk.violations()
    assert list(found) == ["effects by stale holders"]
    assert found["effects by stale holders"] == [
        "agent 1.2: its message edit, received at 5.000, came with a fence that was taken back at 4.000"
    ]
    late = answered().run("timer:5", 4.0, 5.0, edits_s=4.5).run(STOP, 4.0, 4.1, of=STOP)
    assert late.violations(stop=STOP)["effects after a stop"] == ["agent 1.2 took effect at 4.500, after the stop 3"]


def test_the_text_of_a_stream_is_that_of_its_last_edit() -> None:
    def call(method: str, text: str, message_id: int, *, ok: bool = True, run: str = "1") -> Record:
        result = {"chat": {"id": 5_001}, "message_id": message_id}
        return {"at": 1.0, "ok": ok, "method": method, "params": {"text": text, "run": run}, "result": result}

    calls = [
        call("sendMessage", "agent 1.0", 1),
        call("sendMessage", "agent 1.2 is", 2),
        call("editMessageText", "agent 1.2 is confirmed", 2),
        call("editMessageText", "agent 1.2 is refused", 2, ok=False),
    ]
    assert shown_in(calls) == [(1, "agent 1.2 is confirmed")]
    assert [(each.update, each.number, each.text) for each in edits_in(calls)] == [(1, "edit", "agent 1.2")]
    assert [(each.number, each.text) for each in effects_in(calls)] == [(0, "agent 1.0"), (2, "agent 1.2")]


def test_a_stopped_update_that_runs_again_is_found() -> None:
    talk = stopped().run(PRESS, 2.6, 2.9, answer="Yes", says=(2,)).run(STOP, 3.0, 3.5, of=STOP)
    assert talk.violations(stop=STOP) == {"effects after a stop": ["2 was stopped, and ran again at 2.600"]}


def test_a_stop_whose_hook_has_not_run_is_found() -> None:
    talk = stopped()
    assert talk.violations(stop=STOP) == {"effects after a stop": ["on_stop has not run for 3"]}


def test_a_step_that_is_paid_twice_is_found_unless_a_fault_hit_it() -> None:
    first = Talk().asks().run(PRESS, 2.0, answer="Yes", pays="charge", taken_back_s=2.6)
    again = first.run(PRESS, 3.0, 4.0, answer="Yes", says=(2,), pays="charge")
    assert list(again.violations()) == ["sent twice without need"]
    assert again.violations()["sent twice without need"][0].startswith("step 1:1/charge/1: its message step/charge/1")
    # The process died before the outcome was recorded
    killed = Talk().asks().run(PRESS, 2.0, answer="Yes", pays="charge", taken_back_s=2.6, noted=False)
    killed.faults.append(InjectedFault(2.1, "kill_all", "prefork", 0.0, (1,)))
    killed.run(PRESS, 3.0, 4.0, answer="Yes", says=(2,), pays="charge")
    assert killed.violations() == {}
    assert check(killed.evidence()).twice_in_flight == {"step": 1}


def test_an_addition_is_in_the_runs_of_one_update() -> None:
    # One that was there at the begin, one that was taken, also by the run of the answer, and one for itself
    talk = Talk().run(ORDER, 1.0, 1.5, end="raise", says=(0, 1), had=(4,), took=(5,), taken_back_s=1.6)
    talk.run(6, 1.7, 1.8, of=6).run(PRESS, 2.0, 3.0, answer="Yes", says=(2,), had=(4,), took=(5,))
    assert talk.violations(additions=(4, 5, 6)) == {}
    verdict = check(talk.evidence(additions=(4, 5, 6)))
    assert (verdict.additions, verdict.taken) == (3, 1)
    # When it also ran for itself, or was in no run
    again = talk.run(5, 4.0, 4.1, of=5)
    assert again.violations(additions=(5, 7))["additions not in one run"] == [
        "the addition 5 was in the runs of [1, 5]",
        "the addition 7 was in the runs of []",
    ]
    # A stop ends those that wait with the stopped one
    talk = stopped().run(STOP, 3.0, 3.5, of=STOP, says=(0,))
    assert talk.violations(stop=STOP, additions=(7,)) == {}
