"""Bots of other frameworks: updates answered per second by poller and worker, beside the framework's own polling loop.

Each update is answered by one sendMessage to the simulator. The own loop keeps updates in memory and loses them when it
dies; ours writes each one and each call to disk. All updates wait at the simulator before either starts.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench import simulator
from bench.figures import Result, Side
from bench.pace import measure
from bench.rounds import alternate
from bench.rows.intake import poller_settings
from bench.scale import CHATS
from bench.sides import worker
from bench.stage import Child, Stage, emptied
from bench.updates import make_updates
from sandbox.simulator import Simulator, start

#: framework -> the pool and slots that suit it
FRAMEWORKS = {"telebot": ("threads", 8), "aiogram": ("threads", 50), "ptb": ("threads", 50)}
PUSH = 1_000


def run(stage: Stage) -> list[Result]:
    results = []
    with stage.server("frameworks") as url, start(simulator.TOKEN) as telegram:
        for name in FRAMEWORKS:
            measured = alternate(
                stage.scale.rounds,
                {
                    "lanes": lambda name=name: _ours(stage, url, telegram, name),  # type: ignore[misc]
                    "own": lambda name=name: _own(stage, telegram, name),  # type: ignore[misc]
                },
            )
            ours = Side("lanes", measured["lanes"], "poller and one worker, -P {} -c {}".format(*FRAMEWORKS[name]))
            own = Side("its own polling", measured["own"])
            results.append(Result("frameworks", name, "updates/s", ours, own))
    return results


def _ours(stage: Stage, url: str, telegram: Simulator, name: str) -> float:
    pool, slots = FRAMEWORKS[name]
    settings = {**poller_settings(telegram, url), "BOT": f"bench.framework_bots:{name}"}
    with emptied(url), ExitStack() as stack:
        total = _fill(stage, telegram)
        children = [
            stack.enter_context(
                stage.child(f"{name}-worker", *worker("tasks", url, "-P", pool, "-c", slots), **settings)
            ),
            stack.enter_context(stage.child(f"{name}-poller", "poller", **settings)),
        ]
        return _measured(stage, telegram, f"{name} lanes", total, children)


def _own(stage: Stage, telegram: Simulator, name: str) -> float:
    total = _fill(stage, telegram)
    settings = {"BOT_TOKEN": telegram.token, "BOT_API_URL": telegram.url}
    with stage.child(f"{name}-own", "bench.framework_bots", name, **settings) as child:
        return _measured(stage, telegram, f"{name} own", total, [child])


def _fill(stage: Stage, telegram: Simulator) -> int:
    telegram.reset()
    waiting = list(make_updates(stage.scale.answered, CHATS))
    for at in range(0, len(waiting), PUSH):
        telegram.push(*waiting[at : at + PUSH])
    return len(waiting)


def _measured(stage: Stage, telegram: Simulator, name: str, total: int, children: list[Child]) -> float:
    rate = measure(lambda: max(total - telegram.stats()["calls"].get("sendMessage", 0), 0), total, children)
    stage.tell(f"frameworks {name}, {total}: {rate:,.0f}/s")
    return rate
