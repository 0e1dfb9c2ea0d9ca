"""Real calls of the scripts, recorded and judged by the specification."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import NewMessage, Store, connect, keys, scripts
from celery_lanes.protocol.verbs import Leased
from spec.conformance.judge import ACTIONS, Report, judge
from spec.conformance.monitor import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("java") is None, reason="TLC needs Java")]

LEASE_MS = 60_000
STARTS_WITHIN_S = 60.0
Scenario = Callable[[Store], None]


@pytest.fixture
def judged(redis_url: str, server: Server, tmp_path: Path) -> Callable[[Scenario], Report]:
    def run(scenario: Scenario) -> Report:
        recorder = Recorder(server.port, tmp_path)
        recorder.start()
        assert recorder.started.wait(STARTS_WITHIN_S)
        with connect(redis_url) as client:
            client.script_flush()  # so that the scripts are loaded while it records
            scenario(Store(client))
        recorder.end()
        return judge(tmp_path)

    return run


@pytest.fixture
def changed_lua(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Replaces a text in all scripts."""
    read = scripts._read

    def forget() -> None:
        scripts.definitions.cache_clear()
        scripts.script.cache_clear()

    def change(old: str, new: str) -> None:
        monkeypatch.setattr(scripts, "_read", lambda name, package: read(name, package).replace(old, new))
        forget()

    yield change
    monkeypatch.undo()
    forget()


def message(number: int, *lanes: str) -> NewMessage:
    return NewMessage(f"1:{number}", "q", f"body of {number}", list(lanes), ("1", number))


def leased(store: Store, holder: str = "me", room: int = 1) -> list[Leased]:
    return store.turn(["q"], holder=holder, lease_ms=LEASE_MS, room=room).leased


def expire(store: Store) -> None:
    """As if a lease had passed. The second sweep follows at once, so it extends nothing."""
    store.sweep(lease_ms=LEASE_MS)
    for each in store.client.zrange(keys.LEASES, 0, -1):
        store.client.zadd(keys.LEASES, {each: 1})
    store.sweep(lease_ms=LEASE_MS)


def settle(store: Store, *held: Leased) -> None:
    store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(each.id, each.fence) for each in held])


def a_life_of_messages(store: Store) -> None:
    """Each action of the specification, also with a stale fence."""
    malformed = NewMessage("1:9", "q", "body", ["a"], ("1", 9), {"type": "Malformed"})
    store.append([message(1, "a"), message(2, "a", "b"), message(3, "b"), malformed])
    store.append([message(1, "a")])
    store.append([NewMessage("x", "q", "body", ["c"])])
    first, other = leased(store, room=2)
    store.renew([(first.id, first.fence), (other.id, "1")], LEASE_MS)
    store.release([(first.id, first.fence)], died=False)
    expire(store)
    again = {each.id: each for each in leased(store, "another", room=2)}
    settle(store, first)
    store.retry("1:1", again["1:1"].fence, delay_ms=-1, problem={"type": "E"})
    store.sweep(lease_ms=LEASE_MS)
    settle(store, *leased(store))
    (second,) = leased(store)
    store.bury(second.id, second.fence, {"type": "E"})
    store.replay(second.id)
    store.drop("1:9")
    assert leased(store, "forgetful", room=3)
    store.reconcile("forgetful", [])


def deaths(store: Store) -> None:
    store.append([message(4, "d")])
    for _ in range(5):
        (run,) = leased(store)
        store.release([(run.id, run.fence)], died=True)
    assert leased(store) == []


def test_the_scripts_conform_to_the_specification(judged: Callable[[Scenario], Report]) -> None:
    report = judged(a_life_of_messages)
    assert report.divergence == ""
    assert not report.not_specified
    assert set(ACTIONS) - set(report.covered) <= {"died", "killer"}


def test_a_killer_is_buried_as_specified(judged: Callable[[Scenario], Report]) -> None:
    report = judged(deaths)
    assert report.divergence == ""
    assert report.covered["died"] == 5
    assert report.covered["killer"] == 1


def test_a_stale_settle_that_takes_effect_is_named_with_its_step_and_both_states(
    judged: Callable[[Scenario], Report], changed_lua: Callable[[str, str], None]
) -> None:
    changed_lua("found[1] == 'leased' and found[2] == fence", "found[1] == 'leased'")

    def scenario(store: Store) -> None:
        store.append([message(1, "a"), message(2, "a")])
        (first,) = leased(store)
        store.release([(first.id, first.fence)], died=False)
        leased(store, "another")
        settle(store, first)
        leased(store, "another")

    text = judged(scenario).divergence
    assert "The event: settle 1:1 " in text
    assert " release  1:1 " in text  # among the commands before it
    in_redis, specified = text.split("1:1\n  before ")[1].splitlines()[1:3]
    assert in_redis.split() == ["then", "in", "Redis", "none,", "fence", "none,", "died", "0"]
    assert "leased, the fence it had" in specified
