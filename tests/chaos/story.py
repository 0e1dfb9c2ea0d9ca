"""Builds histories by hand, run by run."""

from __future__ import annotations

from chaos.check.checker import Judgement, check
from chaos.evidence.aof import FOREVER, Book, Hold
from chaos.evidence.records import Effect, Evidence, InjectedFault, Record, runs_in

#: For systems without fences.
LEASE_S = 10.0


class Story:
    """Writes records as chaos/systems/bot.py does, and a book. A fence is the time of a hand-out, as in Redis."""

    def __init__(self, *, fences: bool = True) -> None:
        self.records: list[Record] = []
        self.book = Book() if fences else None
        self.effects: list[Effect] = []
        self.faults: list[InjectedFault] = []
        self.buried: set[int] = set()
        self.sessions: dict[str, int] | None = None
        self._runs = 0

    def run(
        self,
        update: int,
        from_s: float,
        to_s: float | None = None,
        *,
        pid: int = 1,
        keys: tuple[str, ...] = ("chat:7",),
        end: str = "end",
        taken_back_s: float = FOREVER,
        says: tuple[float, ...] = (),
        unanswered: bool = False,
        noted: bool = False,
        group: tuple[int, ...] = (),
        again_s: float | None = None,
    ) -> Story:
        """Without `to_s` it never ends by itself. `says`: when Telegram receives its messages 0, 1, …. `group`: what it
        ran, if that was more than `update`. `again_s`: when each call sends its message once more.
        """
        self._runs += 1
        name, fence = str(self._runs), self._handed_out(update, from_s, pid, taken_back_s)
        self._write(name, update, "start", from_s, keys=list(keys), pid=pid, fence=fence, updates=group or (update,))
        for number, at_s in enumerate(says):
            self._write(name, update, "call", at_s, number=number)
            if not unanswered:
                self._write(name, update, "called", again_s or at_s, number=number)
            if noted and self.book and fence:
                self.book.noted.add((update, number, fence))
            times_s = [at_s] if again_s is None else [at_s, again_s]
            self.effects += [Effect(each_s, update, number, name, fence) for each_s in times_s]
        if to_s is not None:
            self._write(name, update, end, to_s)
        return self

    def kills(self, pid: int, at_s: float) -> Story:
        self.faults.append(InjectedFault(at_s, "kill_all", "prefork", 0.0, (pid,)))
        return self

    def injects(self, what: str, target: str, at_s: float, for_s: float = 0.0) -> Story:
        self.faults.append(InjectedFault(at_s, what, target, for_s))
        return self

    def buries(self, *updates: int) -> Story:
        self.buried.update(updates)
        return self

    def handed_out(self, update: int, at_s: float, *, pid: int = 1, taken_back_s: float = FOREVER) -> Story:
        """Adds a hand-out that is never started."""
        self._handed_out(update, at_s, pid, taken_back_s)
        return self

    def evidence(self, *expected: int) -> Evidence:
        return Evidence(
            runs=runs_in(self.records, self.faults, self.book and self.book.holds, LEASE_S),
            effects=self.effects,
            faults=self.faults,
            expected=expected,
            buried=None if self.book is None else frozenset(self.buried),
            book=self.book,
            sessions=self.sessions,
            parts={1: "prefork", 2: "threads"},
        )

    def judged(self, *expected: int) -> Judgement:
        return check(self.evidence(*expected))

    def violations(self, *expected: int) -> dict[str, int]:
        """The number of violations by kind, without empty kinds."""
        found = self.judged(*expected).violations
        return {kind: len(violations) for kind, violations in found.items() if violations}

    def _handed_out(self, update: int, at_s: float, pid: int, taken_back_s: float) -> str | None:
        if self.book is None:
            return None
        fence = f"{at_s * 1e6:.0f}"
        self.book.holds[update, fence] = Hold(update, fence, f"here:{pid}:1", taken_back_s)
        return fence

    def _write(self, run: str, update: int, what: str, at_s: float, **more: object) -> None:
        self.records.append({"at_s": at_s, "id": update, "run": run, "what": what, **more})
