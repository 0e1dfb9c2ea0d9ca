"""Simulated runs keep the promises, repeat by their seed, and notice a fault, which is then shrunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from celery_lanes.protocol import Store, scripts
from chaos.simulation.__main__ import broken_by, shrunk
from chaos.simulation.world import World, steps

STEPS = 400


@pytest.fixture
def without_fence(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Leaves out the comparison of fences in all scripts."""
    read = scripts._read

    def forget() -> None:
        scripts.definitions.cache_clear()
        scripts.script.cache_clear()

    def change() -> None:
        old, new = "found[1] == 'leased' and found[2] == fence", "found[1] == 'leased'"
        monkeypatch.setattr(scripts, "_read", lambda name, package: read(name, package).replace(old, new))
        forget()

    yield change
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize("seed", range(5))
def test_a_run_keeps_all_promises(client: Redis, seed: int) -> None:
    assert broken_by(Store(client), steps(seed, STEPS)) == ""


def test_the_same_seed_gives_the_same_run(client: Redis) -> None:
    def run() -> tuple[object, object]:
        world = World(Store(client))
        for step in steps(3, STEPS):
            world.do(step)
        return world.promises.settled, world.promises.lanes

    assert run() == run()


@pytest.mark.slow
def test_a_fault_is_found_and_shrunk(client: Redis, without_fence: Callable[[], None]) -> None:
    without_fence()
    store = Store(client)
    planned = next(plan for plan in (steps(seed, STEPS) for seed in range(50)) if broken_by(store, plan))
    shortest = shrunk(store, planned)
    assert broken_by(store, shortest).startswith("PromiseBrokenError")
    assert len(shortest) < 50
