"""script-times: the longest time for which one script keeps Redis from serving others, in situations that are as bad as
they can become. Redis measures it (SLOWLOG), without the fsync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from redis import Redis

from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import Harness, emptied
from celery_lanes.protocol import Group, Kind, NewMessage, Set, SetTimer, Store, keys

GOAL = Goal("value", "at most", 10)
#: Scripts that take less are not logged: the log would also hold the commands of scripts.
LEAST_US = 100
LEASE_MS = 60_000
MANY = 10_000


def run(harness: Harness) -> list[Result]:
    found: dict[str, list[float]] = {name: [] for name in CASES}
    with harness.server("script-times") as url:
        for _ in range(harness.scale.rounds):
            for name, (prepare, act) in CASES.items():
                with emptied(url) as client:
                    found[name].append(_longest_ms(client, prepare, act))
                    harness.report(f"script-times: {name}: {found[name][-1]:.1f} ms")
    return [Result("script-times", name, "ms", Side("the longest script", found[name]), None, GOAL) for name in CASES]


def _longest_ms(client: Redis, prepare: Callable[[Store], Any], act: Callable[[Store], Any]) -> float:
    client.config_set("slowlog-log-slower-than", -1)
    store = Store(client)
    prepare(store)
    client.slowlog_reset()
    client.config_set("slowlog-max-len", 1_000)
    client.config_set("slowlog-log-slower-than", LEAST_US)
    act(store)
    client.config_set("slowlog-log-slower-than", -1)
    logged: Any = client.slowlog_get(1_000)
    return max([each["duration"] for each in logged if each["command"].startswith(b"EVALSHA")], default=0) / 1000


def _append(store: Store, count: int, lane: str | None = None, first: int = 0) -> None:
    for start in range(first, first + count, 100):
        numbers = range(start, min(start + 100, first + count))
        store.append(_message(number, lane) for number in numbers)


def _message(number: int, lane: str | None = None, group: Group | None = None) -> NewMessage:
    return NewMessage(f"1:{number}", "q", b"x" * 500, [lane or f"1/chat:{number}"], ("1", number), group=group)


def _lease(store: Store, count: int) -> list[tuple[str, str]]:
    leases: list[tuple[str, str]] = []
    while len(leases) < count:
        room = min(100, count - len(leases))
        leased = store.turn(["q"], holder="h", lease_ms=LEASE_MS, room=room).leased
        leases += [(each.id, each.fence) for each in leased]
    return leases


def _lease_all(store: Store, count: int = MANY) -> None:
    _append(store, count)
    _lease(store, count)


def _settle_and_lease(store: Store) -> None:
    _append(store, 300)
    store.turn(["q"], holder="h", lease_ms=LEASE_MS, room=128, settles=_lease(store, 100))


def _commit(store: Store) -> None:
    _append(store, 1)
    [(id_, fence)] = _lease(store, 1)
    values = [Set(f"value:{number}", b"x" * 16_000) for number in range(1_000)]
    timers = [_timer(number) for number in range(1_000)]
    store.commit(id_, fence, [*values, *timers])


def _timer(number: int, owner: str = "1/chat:7") -> SetTimer:
    stored = b'{"headers":{"task":"tasks.update"}}\n' + b"x" * 200
    return SetTimer(owner, f"timer {number}", f"1:timer:{number}", "q", stored, at_ms=1, lanes=[owner])


def _set_timers(store: Store, count: int = MANY, at_ms: int = 1) -> None:
    for number in range(count):
        timer = _timer(number)
        message = NewMessage(timer.id, timer.queue, timer.stored, timer.lanes)
        store.schedule(message, timer.owner, timer.name, at_ms=2**50)
    if at_ms == 1:
        _make_due(store, keys.TIMERS)


def _make_due(store: Store, zset: str) -> None:
    store.client.zunionstore(zset, {zset: 0})


def _sweep(store: Store) -> None:
    for _ in range(20):
        store.sweep(LEASE_MS)


def _expire(store: Store) -> None:
    _lease_all(store)
    _make_due(store, keys.LEASES)


def _delay(store: Store) -> None:
    _append(store, MANY)
    for id_, fence in _lease(store, MANY):
        store.retry(id_, fence, delay_ms=0, problem={})


def _collect(store: Store) -> None:
    group = Group("talk", LEASE_MS, LEASE_MS, 20)
    for start in range(0, MANY, 100):
        store.append(_message(number, group=group) for number in range(start, start + 100))
    _make_due(store, keys.COLLECTING)


def _outage(store: Store) -> None:
    _lease_all(store, 1_000)
    store.client.set(keys.SWEPT, 1)
    soon_ms = int(store.client.time()[0]) * 1000 + LEASE_MS // 6
    leased: Any = store.client.zrange(keys.LEASES, 0, -1)
    store.client.zadd(keys.LEASES, dict.fromkeys(leased, soon_ms))


def _interrupted(store: Store) -> None:
    group = Group("talk", 0, 0, 1000, interrupts=True)
    store.append([_message(1, "lane", group)])
    _record_calls(store, 2_000)


def _record_calls(store: Store, count: int) -> None:
    [(id_, fence)] = _lease(store, 1)
    for number in range(1, count + 1):
        store.begin(id_, fence, lease_ms=LEASE_MS, position=str(number), what="sendMessage:x")
        store.end(id_, fence, position=str(number), what="sendMessage:x", kind=Kind.DONE, outcome=b"x" * 300)


def _long_journal(store: Store) -> None:
    _append(store, 1)
    _record_calls(store, MANY)
    _make_due(store, keys.LEASES)
    store.sweep(LEASE_MS)


def _other_call(store: Store) -> None:
    [(id_, fence)] = _lease(store, 1)
    store.begin(id_, fence, lease_ms=LEASE_MS, position="1", what="sendPhoto:x")
    store.commit(id_, fence)


def _each(numbers: Iterable[int], step: Callable[[int], Any]) -> None:
    for number in numbers:
        step(number)


def _group(number: int) -> NewMessage:
    return _message(number, "lane", Group("talk", LEASE_MS, LEASE_MS, MANY))


def _bury(store: Store) -> None:
    _append(store, 2_000, "lane")
    store.purge("q")


def _nothing(_: Store) -> None:
    pass


#: case -> what happens before, and the calls that are measured
CASES: dict[str, tuple[Callable[[Store], Any], Callable[[Store], Any]]] = {
    "append of 100 updates": (_nothing, lambda store: _append(store, 1_000)),
    "append of 100 updates to one lane": (_nothing, lambda store: _append(store, 1_000, "lane")),
    "append while 10,000 timers are due": (_set_timers, lambda store: _append(store, 1_000)),
    "append to a run with 2,000 calls, which it interrupts": (
        _interrupted,
        lambda store: store.append([_message(2, "lane", Group("talk", 0, 0, 1000, interrupts=True))]),
    ),
    "append of 100 messages that join one group": (
        _nothing,
        lambda store: _each(
            range(0, 2_000, 100),
            lambda start: store.append(map(_group, range(start, start + 100))),
        ),
    ),
    "fetch that settles 100 and leases 128": (_nothing, _settle_and_lease),
    "commit of 1,000 timers and 1,000 values": (_nothing, _commit),
    "sweep: 10,000 expired leases": (_expire, _sweep),
    "sweep: 10,000 due retries": (_delay, _sweep),
    "sweep: 10,000 due groups": (_collect, _sweep),
    "sweep: 10,000 due timers of one chat": (_set_timers, _sweep),
    "sweep: 1,000 leases after an outage": (_outage, _sweep),
    "purge of 10,000 messages": (lambda store: _append(store, MANY), lambda store: store.purge("q")),
    "replay of 2,000 dead letters of one lane": (
        _bury,
        lambda store: _each(range(2_000), lambda number: store.replay(f"1:{number}")),
    ),
    "repair with 10,000 timers of one chat": (
        lambda store: _set_timers(store, at_ms=0),
        lambda store: _each(range(20), lambda _: store.repair("0", LEASE_MS)),
    ),
    "list 10,000 timers of one chat": (
        lambda store: _set_timers(store, at_ms=0),
        lambda store: store.timers("1/chat:7"),
    ),
    "pause of the last of 100,000 ready messages": (
        lambda store: _append(store, 10 * MANY),
        lambda store: (store.pause("lane", "1/chat:99999"), store.pause("lane", "1/chat:50000")),
    ),
    "another call at the first of 10,000": (_long_journal, _other_call),
}
