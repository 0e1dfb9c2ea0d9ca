"""Peers: a backlog of no-op tasks, beside stock Celery and five other queues on Redis, each at its best settings.

All of them get the same updates in the same server, which fsyncs as the case says. Lanes keep each chat in order and
lose nothing; none of the others keeps an order, and some lose what a dead worker had in hand.
"""

from __future__ import annotations

from bench.contenders import CeleryContender, Contender, Race
from bench.figures import Goal, Result, Side
from bench.peers import PEERS
from bench.rounds import alternate
from bench.sides import Lanes, Stock
from bench.stage import Stage

#: The same choice for both: pools that suit a task that takes no time.
CHOICES = (
    (1, ("-P", "threads", "-c", "8", "--prefetch-multiplier", "4")),
    (2, ("-P", "threads", "-c", "8", "--prefetch-multiplier", "4")),
    (2, ("-P", "solo", "--prefetch-multiplier", "16")),
)
GOALS = {"stock": Goal("ratio", "at least", 5)}
AHEAD = Goal("ratio", "at least", 1)


def run(stage: Stage) -> list[Result]:
    with stage.server("peers") as url:
        return [line for how in stage.scale.fsyncs for line in _race(stage, url, how)]


def _race(stage: Stage, url: str, appendfsync: str) -> list[Result]:
    contenders: list[Contender] = [CeleryContender(Lanes(), CHOICES), CeleryContender(Stock(), CHOICES), *PEERS]
    best, sizes = {}, {}
    for contender in contenders:
        trial = stage.scale.trial.get(contender.name, stage.scale.trial["others"])
        best[contender.name], rate = Race(stage, url, contender, appendfsync).best(trial)
        sizes[contender.name] = max(trial, round(rate * stage.scale.raced_s))
    measured = alternate(
        stage.scale.rounds,
        {
            each.name: lambda each=each: Race(stage, url, each, appendfsync).measure(  # type: ignore[misc]
                best[each.name], sizes[each.name]
            )
            for each in contenders
        },
    )
    ours = Side("lanes", measured["lanes"], best["lanes"].label)
    lines = []
    for other in contenders[1:]:
        how = "; ".join(filter(None, (best[other.name].label, getattr(other, "how", ""))))
        beside = Side(other.name, measured[other.name], how)
        case = f"no-op, best settings, fsync {appendfsync}, beside {other.name}"
        lines.append(Result("peers", case, "tasks/s", ours, beside, GOALS.get(other.name, AHEAD)))
    return lines
