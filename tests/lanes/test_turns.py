"""What a turn must not forget, told without a worker: the order in which a loop reads two answers is its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chatlanes.lanes.protocol.replies import Turned
from chatlanes.lanes.transport.fetch import Turns


def one_place(*, can_wait: bool = False) -> Any:
    """The room of a worker."""
    pool = SimpleNamespace()
    return SimpleNamespace(pool=pool, size=lambda *_: 1, can_wait=lambda: can_wait)


def test_a_bell_read_before_the_answer_of_an_older_turn_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a turn under way, which found nothing left
    settler = SimpleNamespace(room=one_place(), lease_s=15.0, turn_ended=lambda *_, **__: None)
    qos = SimpleNamespace(_delivered=(), _dirty=())
    channel: Any = SimpleNamespace(settler=settler, qos=qos)
    turns = Turns(channel)
    turns._is_rung = False
    turns._turn.sent_s = 0.0
    monkeypatch.setattr("chatlanes.lanes.transport.pending_fetch.turn_answer", lambda _: Turned([], False, False, []))
    monkeypatch.setattr(turns._turn, "read", lambda: None)
    monkeypatch.setattr(turns._bell, "read", lambda: None)
    # When a bell, rung by what came after it, is read first
    turns._read_bell()
    turns._read_turn()
    # Then it is followed by another turn
    assert turns._is_rung
    # And without a bell there is none
    turns._is_rung = False
    turns._read_turn()
    assert not turns._is_rung


def test_with_enough_in_hand_a_turn_waits_unless_another_worker_must_hear_a_bell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room, looked = one_place(can_wait=True), list[int]()
    room.size = lambda occupied: looked.append(occupied) or 1
    ledger = SimpleNamespace(has_settles=lambda: True)
    settler = SimpleNamespace(room=room, ledger=ledger)
    qos = SimpleNamespace(_delivered=(), _dirty=())
    channel: Any = SimpleNamespace(settler=settler, qos=qos)
    turns = Turns(channel)
    asked: list[int] = []
    monkeypatch.setattr(turns._turn, "ask", asked.append)
    turns._is_started = True
    turns.step()
    assert asked == []
    assert looked == [0]  # what others occupy ends without a turn, and whether one can wait hangs on it
    turns._must_pass_on = True
    turns.step()
    assert asked == [1]
    room.can_wait = lambda: False
    turns.step()
    assert asked == [1, 1]
