"""`make chaos ARGS="--losses"`: one blow to Redis in each run, and what it cost.

Nothing may be lost that is promised; what may be lost is reported once by each process, recorded once, and in the
reported range. A blow that this machine cannot give is named.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from chaos.losses.blows import BLOWS
from chaos.losses.judge import Outcome, wrong
from chaos.losses.scene import scene


def losses(names: Sequence[str], keep: Path | None) -> int:
    """Runs the blows with these words in their names; all without any. 1: one broke a promise, 2: none is named so."""
    if unknown := [word for word in names if not _named(word)]:
        print(f"no blow is named {', '.join(unknown)}; there are: {', '.join(BLOWS)}")  # noqa: T201
        return 2
    chosen = dict.fromkeys(name for word in names or [""] for name in _named(word))
    with tempfile.TemporaryDirectory(prefix="losses-") as scratch:
        found = [problem for name in chosen for problem in _struck(name, keep or Path(scratch))]
    return 1 if found else 0


def _named(word: str) -> list[str]:
    return [word] if word in BLOWS else [name for name in BLOWS if word in name]


def _struck(name: str, folder: Path) -> list[str]:
    blow = BLOWS[name]
    if blow.obstacle:
        print(f"{name}: not run, because {blow.obstacle}", flush=True)  # noqa: T201
        return []
    place = folder / name.replace(" ", "-").replace(",", "")
    with scene(place, blow.replicas, is_traced=blow.is_traced, is_small=blow.is_small) as running:
        found = blow.strike(running)
    problems = wrong(found, may_lose=blow.may_lose)
    print(f"{name}: {_figures(found)}: {'; '.join(problems) or 'as promised'}", flush=True)  # noqa: T201
    return problems


def _figures(found: Outcome) -> str:
    reported = ", ".join(f"{first} to {last}" if first <= last else "settlements" for first, last in found.losses)
    return f"{found.confirmed} confirmed, {len(found.never)} lost, reported {reported or 'nothing'}"
