"""Real calls of the scripts, recorded and judged by the specification."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import Group, Limited, NewMessage, Paced, Shielded, Store, connect, keys, scripts
from celery_lanes.protocol.verbs import Leased
from chaos.simulation.world import World, steps
from spec.conformance.judge import ACTIONS, Report, judge
from spec.conformance.monitor import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("java") is None, reason="TLC needs Java")]

LEASE_MS = 60_000
STARTS_WITHIN_S = 60.0
Scenario = Callable[[Store], None]


@pytest.fixture
def judged(redis_url: str, server: Server, tmp_path: Path) -> Callable[[Scenario], Report]:
    def run(scenario: Scenario) -> Report:
        with connect(redis_url) as client:
            client.flushall()
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        recorder = Recorder(server.port, folder)
        recorder.start()
        assert recorder.started.wait(STARTS_WITHIN_S)
        with connect(redis_url) as client:
            client.script_flush()  # so that the scripts are loaded while it records
            scenario(Store(client))
        recorder.end()
        return judge(folder)

    return run


@pytest.fixture
def changed_lua(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Replaces a text in all scripts."""
    read = scripts._read

    def forget() -> None:
        scripts.definitions.cache_clear()
        scripts.script.cache_clear()

    def change(old: str, new: str) -> None:
        assert any(old in path.read_text() for path in Path(scripts.__file__).parent.rglob("*.lua")), old
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
    unnumbered = malformed._replace(id="1:malformed:f7", lanes=[], once=None)
    store.append([message(1, "a"), message(2, "a", "b"), message(3, "b"), malformed, unnumbered])
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
    store.append([unnumbered])
    for letter in (malformed, unnumbered):
        store.drop(letter.id)
        store.append([letter])
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
    of_core = ACTIONS[: ACTIONS.index("group")]
    assert set(of_core) - set(report.covered) <= {"died", "killer"}


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


@pytest.mark.exhaustive
def test_a_simulated_run_conforms_and_covers_the_refinements(judged: Callable[[Scenario], Report]) -> None:
    def scenario(store: Store) -> None:
        world = World(store)
        for step in steps(1, 1500):
            world.do(step)

    report = judged(scenario)
    assert report.divergence == ""
    assert set(report.covered) >= {
        "join",
        "stop",
        "shield",
        "gather",
        "set",
        "fire",
        "cancel",
        "hold",
        "unhold",
        "pause",
    }


def limited(number: int, *places: str, once: tuple[str, int] = ("shop", 0)) -> NewMessage:
    return NewMessage(f"1:order:{number}", "q", f"body of {number}", list(places), (once[0], once[1] or number))


def a_life_of_limits(store: Store) -> None:
    """Messages that wait, keep and leave permits: of one limit, of two, and beside a lane."""
    one, two = Limited("one", 1), Limited("two", 2)
    store.append(
        [limited(1, one), limited(2, one, two), limited(3, two), limited(4, two), limited(5, two), limited(6, "a", one)]
    )
    store.append([limited(7, "a", two), limited(1, one)])
    first, third, fourth = leased(store, room=9)
    store.release([(third.id, third.fence)], died=False)
    store.retry(fourth.id, fourth.fence, delay_ms=-1, problem={"type": "E"})
    store.sweep(lease_ms=LEASE_MS)
    settle(store, first)
    store.bury("1:order:3", {each.id: each for each in leased(store, room=9)}["1:order:3"].fence, {"type": "E"})
    expire(store)
    store.reconcile("me", [])
    store.replay("1:order:3")
    while runs := leased(store, room=9):
        settle(store, *runs)
    assert store.pending("q") == 0


def test_calls_with_limits_conform(judged: Callable[[Scenario], Report]) -> None:
    report = judged(a_life_of_limits)
    assert report.divergence == ""
    assert not report.not_specified
    assert {"append", "seen", "lease", "release", "delay", "due", "bury", "expire", "replay"} <= set(report.covered)


TALK = Group("talk", 60_000, 60_000, 5)


def cancelled_timer(store: Store) -> None:
    store.schedule(NewMessage("t", "q", "body", ["a"]), "me", "x", in_ms=60_000)
    store.cancel("me", "x")


def message_behind_a_running_group(store: Store) -> None:
    store.append([message(1, "a")._replace(group=TALK)])
    store.client.zadd(keys.COLLECTING, {"1:1": 1})
    leased(store)
    store.append([message(2, "a")._replace(group=TALK)])


def message_behind_an_interruptible_run(store: Store) -> None:
    group = TALK._replace(interrupts=True)
    store.append([message(1, "a")._replace(group=group)])
    store.client.zadd(keys.COLLECTING, {"1:1": 1})
    (run,) = leased(store)
    assert store.shield(run.id, run.fence, shielded=True) is Shielded.DONE
    store.append([message(2, "a")._replace(group=group)])


def stopped_run(store: Store) -> None:
    store.append([message(1, "a")])
    leased(store)
    store.append([message(2, "a")._replace(stops=True)])


def number_above_a_held_one(store: Store) -> None:
    store.append([message(1, "a")], hold_ms=60_000)
    store.append([message(3, "a")], hold_ms=60_000)
    store.client.delete(keys.MISSING + "1")  # as if the gap were too old for newer messages
    store.append([message(4, "a")], hold_ms=60_000)


def paused_lane(store: Store) -> None:
    store.append([message(1, "a")])
    store.pause("lane", "a")


def start_within_the_interval_of_a_rate(store: Store) -> None:
    store.append([message(1, Paced("a", "1/h")), message(2, Paced("a", "1/h"))])
    settle(store, *leased(store))
    leased(store)


def more_than_may_run(store: Store) -> None:
    store.append([limited(number, Limited("x", 2)) for number in (1, 2, 3)])


def one_that_waits_while_a_permit_is_free(store: Store) -> None:
    store.append([limited(number, Limited("x", 1)) for number in (1, 2)])
    settle(store, *leased(store))
    leased(store)


def an_older_one_that_comes_back(store: Store) -> None:
    store.append([limited(number, Limited("x", 1)) for number in (1, 2, 3)])
    (first,) = leased(store)
    store.retry(first.id, first.fence, delay_ms=-1, problem={"type": "E"})
    store.sweep(lease_ms=LEASE_MS)
    settle(store, *leased(store))


#: A guard of the scripts, what replaces it, a scenario that needs it, and the event that is then no step.
FAULTS = [
    ("local was_set = redis.call('ZREM', TIMERS, timer)", "local was_set = 1", cancelled_timer, "cancel"),
    ("if fence and not open_ms then return false end", "", message_behind_a_running_group, "group 1:2"),
    ("interrupts and not is_shielded and", "interrupts and", message_behind_an_interruptible_run, "group 1:2"),
    ("if state == 'ready' then take_back(id, 'ready') else give_back(id) end", "", stopped_run, "append 1:2"),
    ("and has_held(scope) and redis.call", "and false and redis.call", number_above_a_held_one, "append 1:4"),
    ("if first then hold_back(first) end", "", paused_lane, "pause"),
    ("'(0') >= most then", "'(0') > most then", more_than_may_run, "append 1:order:3"),
    (
        "if keys.limits then leave_limits(id, keys.limits) end",
        "",
        one_that_waits_while_a_permit_is_free,
        "settle 1:order:1",
    ),
    (
        "number_of(redis.call('HGET', MESSAGE .. id, 'seq')) or now_us",
        "now_us",
        an_older_one_that_comes_back,
        "settle 1:order:2",
    ),
    ("started_ms + interval_ms > now_ms", "false", start_within_the_interval_of_a_rate, "lease 1:2"),
]


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("guard", "without", "scenario", "event"), FAULTS, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_guard_that_is_missing_is_named_with_its_step(
    judged: Callable[[Scenario], Report],
    changed_lua: Callable[[str, str], None],
    guard: str,
    without: str,
    scenario: Scenario,
    event: str,
) -> None:
    assert judged(scenario).divergence == ""
    changed_lua(guard, without)
    text = judged(scenario).divergence
    assert f"The event: {event}" in text
    assert "The commands before it, and it:" in text
