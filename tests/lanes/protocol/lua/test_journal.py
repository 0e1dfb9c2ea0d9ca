"""begin and end: the calls in a message's journal, and the lifetime of the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from redis import Redis

from celery_lanes.protocol import Begun, Kind, Noted, Outcome, Store
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    LEASE_MS,
    State,
    buried,
    fence,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B = "1:10", "1:11"
HELLO, PHOTO = "sendMessage:1f", "sendPhoto:2e"


def journal_of(client: Redis, store: Store, journal: Mapping[str, str], position: str, what: str = HELLO) -> Begun:
    """Begin a call in this journal, as the run with fence 4, whose lease is about to expire."""
    seed(
        client,
        state_with(leased(A, "a", fence=4, minutes=1), waiting(B, "a"), journals={A: journal} if journal else {}),
    )
    return store.begin(A, fence(4), lease_ms=LEASE_MS, position=position, what=what)


def left(journal: Mapping[str, str]) -> State:
    """The expected state: this journal, and a renewed lease."""
    return state_with(leased(A, "a", fence=4), waiting(B, "a"), journals={A: journal} if journal else {})


BEGINS: dict[str, tuple[Mapping[str, str], str, Begun, Mapping[str, str]]] = {
    "the first call": ({}, "1", Begun(Noted.BEGUN), {"1": f"begun 4 {HELLO} ", "last": "1"}),
    "the next call": (
        {"1": f"done 4 {HELLO} true", "last": "1"},
        "2",
        Begun(Noted.BEGUN),
        {"1": f"done 4 {HELLO} true", "2": f"begun 4 {HELLO} ", "last": "2"},
    ),
    "a call of an earlier run": (
        {"1": f"done 3 {HELLO} a b\nc", "last": "1"},
        "1",
        Begun(Noted.DONE, b"a b\nc"),
        {"1": f"done 3 {HELLO} a b\nc", "last": "1"},
    ),
    "a call of an earlier run without an outcome text": (
        {"1": f"done 3 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.DONE, b""),
        {"1": f"done 3 {HELLO} ", "last": "1"},
    ),
    "a refused call before another call": (
        {"1": f"refused 3 {HELLO} no", "2": f"begun 3 {HELLO} ", "last": "2"},
        "1",
        Begun(Noted.REFUSED, b"no"),
        {"1": f"refused 3 {HELLO} no", "2": f"begun 3 {HELLO} ", "last": "2"},
    ),
    "a refused call before an undone call": (
        {"1": f"refused 3 {HELLO} no", "last": "2"},
        "1",
        Begun(Noted.REFUSED, b"no"),
        {"1": f"refused 3 {HELLO} no", "last": "2"},
    ),
    "a refused call that was the last one": (
        {"1": f"refused 3 {HELLO} no", "last": "1"},
        "1",
        Begun(Noted.BEGUN),
        {"1": f"begun 4 {HELLO} ", "last": "1"},
    ),
    "a call of an earlier run that has not ended": (
        {"1": f"begun 3 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.UNCERTAIN),
        {"1": f"doubtful 4 {HELLO} ", "last": "1"},
    ),
    "a call that is uncertain since several runs": (
        {"1": f"doubtful 3 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.UNCERTAIN),
        {"1": f"doubtful 4 {HELLO} ", "last": "1"},
    ),
    "a call that this run has begun before": (
        {"1": f"begun 4 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.BEGUN),
        {"1": f"begun 4 {HELLO} ", "last": "1"},
    ),
    "a call that this run has begun before, uncertain since an earlier run": (
        {"1": f"doubtful 4 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.UNCERTAIN),
        {"1": f"doubtful 4 {HELLO} ", "last": "1"},
    ),
    "a different call than in the earlier run": (
        {
            "1": f"done 3 {HELLO} x",
            "2": f"done 3 {PHOTO} x",
            "3": f"begun 3 {HELLO} ",
            "10": f"refused 3 {HELLO} x",
            "hook/2": f"done 3 {HELLO} x",
            "hook/last": "2",
            "last": "10",
        },
        "2",
        Begun(Noted.DIFFERENT, PHOTO.encode()),
        {
            "1": f"done 3 {HELLO} x",
            "2": f"begun 4 {HELLO} ",
            "hook/2": f"done 3 {HELLO} x",
            "hook/last": "2",
            "last": "2",
        },
    ),
    "a different call, with later ones of this run": (
        {"1": f"done 3 {PHOTO} x", "2": f"begun 4 {HELLO} ", "3": f"done 3 {HELLO} x", "last": "3"},
        "1",
        Begun(Noted.DIFFERENT, PHOTO.encode()),
        {"1": f"begun 4 {HELLO} ", "2": f"begun 4 {HELLO} ", "last": "1"},
    ),
    "a call in another series": (
        {"1": f"done 3 {PHOTO} x", "last": "1"},
        "hook2/1",
        Begun(Noted.BEGUN),
        {"1": f"done 3 {PHOTO} x", "last": "1", "hook2/1": f"begun 4 {HELLO} ", "hook2/last": "1"},
    ),
}


@pytest.mark.parametrize("which", BEGINS)
def test_begin_records_or_replays_a_call_and_extends_the_lease(client: Redis, store: Store, which: str) -> None:
    given, position, begun, then = BEGINS[which]
    assert journal_of(client, store, given, position) == begun
    counted = {
        "uncertain": begun.noted is Noted.UNCERTAIN and given["1"].split()[1] != "4",
        "answered": begun.noted in (Noted.DONE, Noted.REFUSED),
    }
    assert read(client) == replace(left(then), counts={name: 1 for name, is_counted in counted.items() if is_counted})


BEGUN = {"1": f"begun 4 {HELLO} ", "last": "1"}
DOUBTFUL = {"1": f"doubtful 4 {HELLO} ", "last": "1"}

ENDS: dict[str, tuple[Mapping[str, str], Kind, bytes, Mapping[str, str]]] = {
    "done": (BEGUN, Kind.DONE, b'{"a": 1}', {"1": f'done 4 {HELLO} {{"a": 1}}', "last": "1"}),
    "done after an uncertain run": (DOUBTFUL, Kind.DONE, b"x", {"1": f"done 4 {HELLO} x", "last": "1"}),
    "refused": (BEGUN, Kind.REFUSED, b"no", {"1": f"refused 4 {HELLO} no", "last": "1"}),
    "done, reported twice": (
        {"1": f"done 4 {HELLO} x", "last": "1"},
        Kind.DONE,
        b"x",
        {"1": f"done 4 {HELLO} x", "last": "1"},
    ),
    "undone": (BEGUN, Kind.UNDONE, b"", {"last": "1"}),
    "undone after an uncertain run": (DOUBTFUL, Kind.UNDONE, b"", DOUBTFUL),
    "undone, reported after done": (
        {"1": f"done 4 {HELLO} x", "last": "1"},
        Kind.UNDONE,
        b"",
        {"1": f"done 4 {HELLO} x", "last": "1"},
    ),
    "undone, reported twice": ({"last": "1"}, Kind.UNDONE, b"", {"last": "1"}),
}


@pytest.mark.parametrize("which", ENDS)
def test_end_records_the_outcome(client: Redis, store: Store, which: str) -> None:
    given, kind, outcome, then = ENDS[which]
    seed(client, state_with(leased(A, "a", fence=4), journals={A: given}))
    assert store.end(A, fence(4), position="1", what=HELLO, kind=kind, outcome=outcome) is Outcome.DONE
    assert read(client) == state_with(leased(A, "a", fence=4), journals={A: then})


JOURNAL = {"1": f"done 1 {HELLO} x", "2": f"begun 1 {PHOTO} ", "last": "2"}

KEEPS: dict[str, Callable[[Store], object]] = {
    "release": lambda store: store.release([(A, fence(1))]),
    "death": lambda store: store.release([(A, fence(1))], died=True),
    "retry": lambda store: store.retry(A, fence(1), delay_ms=0, problem={"type": "E"}),
    "bury": lambda store: store.bury(A, fence(1), {"type": "E"}),
    "sweep": lambda store: store.sweep(LEASE_MS),
    "reconcile": lambda store: store.reconcile("me", []),
    "purge": lambda store: (store.release([(A, fence(1))]), store.purge("q")),
    "replay": lambda store: (store.bury(A, fence(1), {"type": "E"}), store.replay(A)),
    "repair": lambda store: store.repair("0", LEASE_MS),
}


@pytest.mark.parametrize("verb", KEEPS)
def test_verbs_that_do_not_settle_keep_the_journal(client: Redis, store: Store, verb: str) -> None:
    seed(client, state_with(leased(A, "a", minutes=-1), journals={A: JOURNAL}))
    KEEPS[verb](store)
    assert read(client).journals == {A: JOURNAL}


def test_a_settle_deletes_the_journal(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), leased(B, "b"), journals={A: JOURNAL, B: JOURNAL}))
    store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(A, fence(1))])
    assert read(client) == state_with(leased(B, "b"), journals={B: JOURNAL}, counts={"settled": 1})


def test_repair_deletes_a_journal_without_a_message(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(B, "b"), buried("1:12"), journals={A: JOURNAL, B: JOURNAL, "1:12": JOURNAL}))
    store.repair("0", LEASE_MS)
    assert sorted(read(client).journals) == sorted([B, "1:12"])
    assert read(client).counts["repaired"] == 1


@pytest.mark.parametrize("position", ["", "0", "a", "01", "1 2", "x 1", "1\n", "-1.5 "])
def test_an_invalid_position_is_refused(store: Store, position: str) -> None:
    with pytest.raises(ValueError, match="as position"):
        store.begin(A, fence(1), lease_ms=1, position=position, what=HELLO)


@pytest.mark.parametrize("what", ["", "a b", "a\nb"])
def test_a_call_name_with_blanks_is_refused(store: Store, what: str) -> None:
    with pytest.raises(ValueError, match="no blanks"):
        store.begin(A, fence(1), lease_ms=1, position="1", what=what)


def test_a_long_journal_is_forgotten_in_several_steps(client: Redis, store: Store) -> None:
    # Given 2,000 calls of an earlier run, of which this run makes the first two
    calls = {f"{number}": f"done 3 {HELLO} x" for number in range(1, 2_001)}
    seed(client, state_with(leased(A, "a", fence=4), journals={A: {**calls, "last": "2000"}}))
    begin = {"lease_ms": LEASE_MS, "position": "3"}
    client.config_resetstat()
    # When it makes another third call, then all that follow are forgotten, in several steps
    assert store.begin(A, fence(4), what=PHOTO, **begin) == Begun(Noted.DIFFERENT, HELLO.encode())
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] >= 5
    assert read(client).journals[A] == {
        "1": f"done 3 {HELLO} x",
        "2": f"done 3 {HELLO} x",
        "3": f"begun 4 {PHOTO} ",
        "last": "3",
    }
    # And the call may be begun again
    assert store.begin(A, fence(4), what=PHOTO, **begin) == Begun(Noted.BEGUN)
