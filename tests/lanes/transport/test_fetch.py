"""Fetches of a channel without a worker: wake-ups and replies in any order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celery_lanes.leases.in_flight import InFlight
from celery_lanes.leases.prefetch import Pool
from celery_lanes.protocol import Command, Fetched
from celery_lanes.transport.fetch import FetchLoop
from celery_lanes.transport.transport import QueuesToRead


@pytest.fixture
def fetch_loop() -> Any:
    """The fetch loop of a worker with one slot."""
    in_flight = InFlight()
    in_flight.capacity.use_pool(Pool(slots=lambda: 1, forks=False, spare=0))
    qos = SimpleNamespace(_delivered=(), _dirty=())
    yield FetchLoop(SimpleNamespace(in_flight=in_flight, qos=qos))
    in_flight.channel.close()


def test_a_wakeup_before_an_older_reply_is_kept(fetch_loop: FetchLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a fetch in flight that found no more ready messages
    fetch_loop._is_notified = False
    fetch_loop._fetch.sent_s = 0.0
    nothing = Command(None, [], lambda _: Fetched([], False, False, []))
    monkeypatch.setattr(fetch_loop._fetch, "_command", nothing)
    monkeypatch.setattr(fetch_loop._fetch, "read", lambda: None)
    monkeypatch.setattr(fetch_loop._wait, "read", lambda: None)
    # When a wake-up for a later message is read before its reply
    fetch_loop._read_wait()
    fetch_loop._read_fetch()
    # Then another fetch follows
    assert fetch_loop._is_notified
    # And without a wake-up, none follows
    fetch_loop._is_notified = False
    fetch_loop._read_fetch()
    assert not fetch_loop._is_notified


def test_a_full_worker_fetches_only_to_pass_on_a_wakeup(fetch_loop: FetchLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given pending settles, and a worker that holds enough messages
    capacity, fetched, occupied_slots = fetch_loop._in_flight.capacity, list[int](), list[int]()
    monkeypatch.setattr(capacity, "size", lambda occupied: occupied_slots.append(occupied) or 1)
    monkeypatch.setattr(capacity, "can_wait", lambda: True)
    monkeypatch.setattr(fetch_loop._in_flight.pending_acks, "has_settles", lambda: True)
    monkeypatch.setattr(fetch_loop._fetch, "ask", fetched.append)
    fetch_loop._is_started = True
    fetch_loop.step()
    assert fetched == []
    assert occupied_slots == [0]  # occupied slots become free without a fetch, and `can_wait` depends on them
    fetch_loop._must_pass_on = True
    fetch_loop.step()
    assert fetched == [1]
    monkeypatch.setattr(capacity, "can_wait", lambda: False)
    fetch_loop.step()
    assert fetched == [1, 1]


def test_a_fetch_that_only_settles_uses_up_no_turn_of_a_group(
    fetch_loop: FetchLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two groups of queues, and a worker whose every second fetch has no capacity
    channel, sent = fetch_loop._channel, list[list[Any]]()
    channel.connection = SimpleNamespace(lane_weights={})
    channel.queues_to_read = lambda: QueuesToRead([], ["large", "small"], [])
    monkeypatch.setattr(fetch_loop._fetch, "send", lambda _, arguments: sent.append(arguments))
    # When it fetches
    for capacity in (1, 0) * 4:
        fetch_loop._fetch.ask(capacity)
    # Then each group is first in every second fetch that has capacity
    firsts = [min(arguments.index("large"), arguments.index("small")) for arguments in sent[::2]]
    assert [arguments[first] for arguments, first in zip(sent[::2], firsts, strict=True)] == ["small", "large"] * 2
