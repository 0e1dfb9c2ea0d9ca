"""begin and end: what a message's journal says of its calls, and what becomes of it with the message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from redis import Redis

from chatlanes.lanes.protocol.replies import Begun, Kind, Noted, Outcome
from chatlanes.lanes.protocol.store import Store
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import LEASE_MS, State, buried, fence, leased, ready, seed, standing, waiting

A, B = "1:10", "1:11"
HELLO, PHOTO = "sendMessage:1f", "sendPhoto:2e"


def journal_of(client: Redis, store: Store, journal: Mapping[str, str], position: str, what: str = HELLO) -> Begun:
    """Begins a call of run 4 in this journal; the lease was near its end."""
    seed(
        client, standing(leased(A, "a", fence=4, minutes=1), waiting(B, "a"), journals={A: journal} if journal else {})
    )
    return store.begin(A, fence(4), lease_ms=LEASE_MS, position=position, what=what)


def left(journal: Mapping[str, str]) -> State:
    """With the lease extended."""
    return standing(leased(A, "a", fence=4), waiting(B, "a"), journals={A: journal} if journal else {})


BEGINS: dict[str, tuple[Mapping[str, str], str, Begun, Mapping[str, str]]] = {
    "the first call": ({}, "1", Begun(Noted.BEGUN), {"1": f"begun 4 {HELLO} ", "last": "1"}),
    "the next call": (
        {"1": f"done 4 {HELLO} true", "last": "1"},
        "2",
        Begun(Noted.BEGUN),
        {"1": f"done 4 {HELLO} true", "2": f"begun 4 {HELLO} ", "last": "2"},
    ),
    "one that an earlier run made": (
        {"1": f"done 3 {HELLO} a b\nc", "last": "1"},
        "1",
        Begun(Noted.DONE, b"a b\nc"),
        {"1": f"done 3 {HELLO} a b\nc", "last": "1"},
    ),
    "one that an earlier run made, with nothing to tell": (
        {"1": f"done 3 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.DONE, b""),
        {"1": f"done 3 {HELLO} ", "last": "1"},
    ),
    "one that was refused, and the run went on": (
        {"1": f"refused 3 {HELLO} no", "2": f"begun 3 {HELLO} ", "last": "2"},
        "1",
        Begun(Noted.REFUSED, b"no"),
        {"1": f"refused 3 {HELLO} no", "2": f"begun 3 {HELLO} ", "last": "2"},
    ),
    "one that was refused, and the run went on to a call that was not made": (
        {"1": f"refused 3 {HELLO} no", "last": "2"},
        "1",
        Begun(Noted.REFUSED, b"no"),
        {"1": f"refused 3 {HELLO} no", "last": "2"},
    ),
    "one that was refused last": (
        {"1": f"refused 3 {HELLO} no", "last": "1"},
        "1",
        Begun(Noted.BEGUN),
        {"1": f"begun 4 {HELLO} ", "last": "1"},
    ),
    "one that an earlier run left without an outcome": (
        {"1": f"begun 3 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.UNCERTAIN),
        {"1": f"doubtful 4 {HELLO} ", "last": "1"},
    ),
    "one that is uncertain since several runs": (
        {"1": f"doubtful 3 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.UNCERTAIN),
        {"1": f"doubtful 4 {HELLO} ", "last": "1"},
    ),
    "one that this run has begun and not made": (
        {"1": f"begun 4 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.BEGUN),
        {"1": f"begun 4 {HELLO} ", "last": "1"},
    ),
    "one that this run has begun and not made, and an earlier run may have": (
        {"1": f"doubtful 4 {HELLO} ", "last": "1"},
        "1",
        Begun(Noted.UNCERTAIN),
        {"1": f"doubtful 4 {HELLO} ", "last": "1"},
    ),
    "another call than the earlier run's": (
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
    "another call, beside later ones of this run": (
        {"1": f"done 3 {PHOTO} x", "2": f"begun 4 {HELLO} ", "3": f"done 3 {HELLO} x", "last": "3"},
        "1",
        Begun(Noted.DIFFERENT, PHOTO.encode()),
        {"1": f"begun 4 {HELLO} ", "2": f"begun 4 {HELLO} ", "last": "1"},
    ),
    "a call in a series of its own": (
        {"1": f"done 3 {PHOTO} x", "last": "1"},
        "hook2/1",
        Begun(Noted.BEGUN),
        {"1": f"done 3 {PHOTO} x", "last": "1", "hook2/1": f"begun 4 {HELLO} ", "hook2/last": "1"},
    ),
}


@pytest.mark.parametrize("which", BEGINS)
def test_begin_records_or_replays_a_call_and_extends_the_lease(client: Redis, store: Store, which: str) -> None:
    given, position, answer, then = BEGINS[which]
    assert journal_of(client, store, given, position) == answer
    counted = {
        "uncertain": answer.noted is Noted.UNCERTAIN and given["1"].split()[1] != "4",
        "answered": answer.noted in (Noted.DONE, Noted.REFUSED),
    }
    assert read(client) == replace(left(then), counts={name: 1 for name, is_counted in counted.items() if is_counted})


BEGUN = {"1": f"begun 4 {HELLO} ", "last": "1"}
DOUBTFUL = {"1": f"doubtful 4 {HELLO} ", "last": "1"}

ENDS: dict[str, tuple[Mapping[str, str], Kind, bytes, Mapping[str, str]]] = {
    "made": (BEGUN, Kind.DONE, b'{"a": 1}', {"1": f'done 4 {HELLO} {{"a": 1}}', "last": "1"}),
    "made at last": (DOUBTFUL, Kind.DONE, b"x", {"1": f"done 4 {HELLO} x", "last": "1"}),
    "refused": (BEGUN, Kind.REFUSED, b"no", {"1": f"refused 4 {HELLO} no", "last": "1"}),
    "told twice": ({"1": f"done 4 {HELLO} x", "last": "1"}, Kind.DONE, b"x", {"1": f"done 4 {HELLO} x", "last": "1"}),
    "not made": (BEGUN, Kind.UNDONE, b"", {"last": "1"}),
    "not made now, and perhaps before": (DOUBTFUL, Kind.UNDONE, b"", DOUBTFUL),
    "not made, told after it was made": (
        {"1": f"done 4 {HELLO} x", "last": "1"},
        Kind.UNDONE,
        b"",
        {"1": f"done 4 {HELLO} x", "last": "1"},
    ),
    "not made, told twice": ({"last": "1"}, Kind.UNDONE, b"", {"last": "1"}),
}


@pytest.mark.parametrize("which", ENDS)
def test_end_notes_the_outcome(client: Redis, store: Store, which: str) -> None:
    given, kind, outcome, then = ENDS[which]
    seed(client, standing(leased(A, "a", fence=4), journals={A: given}))
    assert store.end(A, fence(4), position="1", what=HELLO, kind=kind, outcome=outcome) is Outcome.DONE
    assert read(client) == standing(leased(A, "a", fence=4), journals={A: then})


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
def test_whatever_does_not_finish_a_message_keeps_its_journal(client: Redis, store: Store, verb: str) -> None:
    seed(client, standing(leased(A, "a", minutes=-1), journals={A: JOURNAL}))
    KEEPS[verb](store)
    assert read(client).journals == {A: JOURNAL}


def test_a_settled_message_takes_its_journal_along(client: Redis, store: Store) -> None:
    seed(client, standing(leased(A, "a"), leased(B, "b"), journals={A: JOURNAL, B: JOURNAL}))
    store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(A, fence(1))])
    assert read(client) == standing(leased(B, "b"), journals={B: JOURNAL}, counts={"settled": 1})


def test_a_journal_without_a_message_is_no_use(client: Redis, store: Store) -> None:
    seed(client, standing(ready(B, "b"), buried("1:12"), journals={A: JOURNAL, B: JOURNAL, "1:12": JOURNAL}))
    store.repair("0", LEASE_MS)
    assert sorted(read(client).journals) == sorted([B, "1:12"])
    assert read(client).counts["repaired"] == 1


@pytest.mark.parametrize("position", ["", "0", "a", "01", "1 2", "x 1", "1\n", "-1.5 "])
def test_an_invalid_position_is_refused_before_it_is_sent(store: Store, position: str) -> None:
    with pytest.raises(ValueError, match="as position"):
        store.begin(A, fence(1), lease_ms=1, position=position, what=HELLO)


@pytest.mark.parametrize("what", ["", "a b", "a\nb"])
def test_a_name_with_blanks_is_refused_before_it_is_sent(store: Store, what: str) -> None:
    with pytest.raises(ValueError, match="no blanks"):
        store.begin(A, fence(1), lease_ms=1, position="1", what=what)
