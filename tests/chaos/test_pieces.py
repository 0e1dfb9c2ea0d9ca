"""A long run in pieces: what is stored, and where it continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.pieces import HOUR_S, OtherOptionsError, Piece, Total, load, run_pieces


class Runs:
    """The pieces that were run. The one with the seed `dies` is killed."""

    def __init__(self, dies: int = 0) -> None:
        self.seeds, self._dies = list[int](), dies

    def __call__(self, seed: int) -> Piece:
        self.seeds.append(seed)
        if seed == self._dies:
            raise KeyboardInterrupt
        return Piece(seed, HOUR_S / 2, 100, 10, 1000, {"lost": 2} if seed == 8 else {}, ["append", f"of {seed}"])


def started(path: Path, runs: Runs, hours: float, seed: int | None = None, options: str = "--seconds 60") -> Total:
    return run_pieces(load(path, seed, 7, options), hours, path, runs, lambda _: None)


def test_a_run_that_was_ended_continues_with_the_piece_it_was_in(tmp_path: Path) -> None:
    path, first, second = tmp_path / "kept" / "total.json", Runs(dies=9), Runs()
    with pytest.raises(KeyboardInterrupt):
        started(path, first, 2.0)

    total = started(path, second, 2.0)

    assert (first.seeds, second.seeds) == ([7, 8, 9], [9, 10])
    assert total.hours == 2.0
    assert started(path, Runs(), 2.0) == total
    assert started(path, Runs(), 2.5).hours == 2.5


def test_the_total_says_how_long_it_was_and_what_was_found(tmp_path: Path) -> None:
    total = started(tmp_path / "total.json", Runs(), 1.0)

    assert total.lines(["append", "of 8", "drop"]) == [
        "total: 1.00 hours in 2 pieces (seeds 7 to 8): 200 updates, 20 faults, 2,000 calls judged",
        "total: not covered of the specification: drop",
        "total: found: lost (2)",
        "total: seed 8: lost",
    ]
    assert Total(7, "").lines([])[0].startswith("total: 0.00 hours in 0 pieces (none)")


@pytest.mark.parametrize(("seed", "options"), [(8, "--seconds 60"), (None, "--seconds 60 --webhook")])
def test_pieces_of_other_options_are_refused(tmp_path: Path, seed: int | None, options: str) -> None:
    path = tmp_path / "total.json"
    started(path, Runs(), 0.5)

    with pytest.raises(OtherOptionsError, match="has a run with --seed 7 --seconds 60: continue it with these"):
        started(path, Runs(), 1.0, seed, options)

    assert started(path, Runs(), 1.0, seed=7).hours == 1.0
