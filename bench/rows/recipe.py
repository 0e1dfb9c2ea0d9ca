"""The ordered recipe: no-op tasks in lanes, beside hash-routed stock queues with a `-c 1` worker for each.

Both keep the order of a chat as long as nothing dies. Each backlog is there before the workers begin; they are started
once, and frozen while the other side is measured.
"""

from __future__ import annotations

from bench.figures import Goal, Result, Side
from bench.rounds import alternate
from bench.scale import CHATS, QUEUES
from bench.sides import Lanes, Recipe
from bench.stage import Stage
from bench.team import team

GOAL = Goal("ratio", "at least", 5)
OURS = ("-P", "threads", "-c", "8", "--prefetch-multiplier", "4")
#: solo is the fastest pool of one slot; `-P prefork -c 1` would be as many processes again.
RECIPE = ("-P", "solo", "--prefetch-multiplier", "16")


def run(stage: Stage) -> list[Result]:
    sizes = stage.scale.recipe
    recipes = [(*RECIPE, "-Q", f"updates.{number}") for number in range(QUEUES)]
    with team(stage, Lanes(), [OURS]) as ours, team(stage, Recipe(), recipes) as theirs:
        measured = alternate(
            stage.scale.rounds,
            {each.side.name: lambda each=each: each.measure(sizes[each.side.name], CHATS) for each in (ours, theirs)},  # type: ignore[misc]
        )
    mine = Side("lanes", measured["lanes"], f"1 × {' '.join(OURS[:4])}")
    recipe = Side("hash-routed queues", measured["recipe"], f"{QUEUES} × -c 1 {' '.join(RECIPE[:2])}")
    return [Result("recipe", f"no-op, {CHATS} chats, in order", "tasks/s", mine, recipe, GOAL)]
