"""`--hours`: a long run in pieces, each a whole run with a seed of its own.

What was found is stored after each piece. So a run that was ended, or killed, continues with the piece that it was in;
nothing of a piece is counted before it has been judged.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

HOUR_S = 3600.0


@dataclass(frozen=True)
class Piece:
    """`run_s`: until all updates were done, without the judgement. `found`: violations by kind. `covered`: actions of
    the specification.
    """

    seed: int
    run_s: float
    updates: int
    faults: int
    calls: int
    found: dict[str, int]
    covered: list[str]


@dataclass(frozen=True)
class Total:
    """`options`: of the pieces, which must be the same for all."""

    seed: int
    options: str
    pieces: list[Piece] = field(default_factory=list)

    @property
    def hours(self) -> float:
        return sum(piece.run_s for piece in self.pieces) / HOUR_S

    @property
    def found(self) -> dict[int, dict[str, int]]:
        """By seed, only what a piece has found."""
        return {piece.seed: piece.found for piece in self.pieces if piece.found}

    def lines(self, actions: Sequence[str]) -> list[str]:
        """`actions`: that may be covered; the others are named."""
        covered = {action for piece in self.pieces for action in piece.covered}
        updates, faults, calls = (
            sum(getattr(piece, name) for piece in self.pieces) for name in ("updates", "faults", "calls")
        )
        left = ", ".join(action for action in actions if action not in covered)
        seeds = f"seeds {self.seed} to {self.seed + len(self.pieces) - 1}" if self.pieces else "none"
        lines = [
            f"total: {self.hours:.2f} hours in {len(self.pieces)} pieces ({seeds}): {updates:,} updates, "
            f"{faults:,} faults, {calls:,} calls judged",
            f"total: not covered of the specification: {left or 'nothing'}"
            if calls
            else "total: no call was judged by the specification",
        ]
        kinds = sum((Counter(found) for found in self.found.values()), Counter[str]())
        lines.append("total: found: " + (", ".join(f"{kind} ({n})" for kind, n in kinds.items()) or "nothing"))
        return [*lines, *(f"total: seed {seed}: {', '.join(found)}" for seed, found in self.found.items())]


class OtherOptionsError(Exception):
    """The stored total is of a run with other options; the text says what to do."""


def load(path: Path, seed: int | None, default_seed: int, options: str) -> Total:
    """The stored total, or a new one. Raises OtherOptionsError."""
    if not path.exists():
        return Total(default_seed if seed is None else seed, options)
    stored = json.loads(path.read_text())
    total = Total(stored["seed"], stored["options"], [Piece(**piece) for piece in stored["pieces"]])
    if total.options != options or seed not in (None, total.seed):
        raise OtherOptionsError(
            f"{path} has a run with --seed {total.seed} {total.options}".rstrip()
            + ": continue it with these options, or move the file away"
        )
    return total


def run_pieces(
    total: Total, hours: float, path: Path, run: Callable[[int], Piece], say: Callable[[Total], None]
) -> Total:
    """Runs pieces until they have lasted for `hours`, those of earlier starts included."""
    say(total)
    while total.hours < hours:
        piece = run(total.seed + len(total.pieces))
        total = replace(total, pieces=[*total.pieces, piece])
        _save(total, path)
        say(total)
    return total


def _save(total: Total, path: Path) -> None:
    """As a whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(asdict(total)))
    os.replace(unfinished, path)
