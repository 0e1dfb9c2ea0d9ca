"""Texts of many timers are packed by a version of a dictionary: releases with different ones run beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from celery_lanes.errors import UnknownVersion
from celery_lanes.protocol import NewMessage, Store, Texts, digest, keys, script, scripts, use_texts
from celery_lanes.protocol.envelope import TIMER_TEXTS

FIRST: Texts = (("one ", "two\n'\\"),)
#: The next release: the same codes have other texts.
SECOND: Texts = (*FIRST, ("two\n'\\", "drei ü "))
STORED = b"one two\n'\\ drei \xc3\xbc 7 tea"
OWNER, LEASE_MS = "7/key:5", 30_000


@contextmanager
def release(texts: Texts) -> Iterator[None]:
    """A process whose app has these texts."""
    before = scripts._texts
    scripts._texts = TIMER_TEXTS
    try:
        use_texts(texts)
        script.cache_clear()
        yield
    finally:
        scripts._texts = before
        script.cache_clear()
        digest.cache_clear()


def schedule(store: Store, name: str, in_ms: int = 0, stored: bytes = STORED) -> None:
    due_ms = int(store.client.time()[0]) * 1000 + in_ms
    message = NewMessage(f"7:{name}", "q", stored, [OWNER])
    # A time that is past would fire at once: it is set for later, and becomes due.
    store.schedule(message, OWNER, name, in_ms=3_600_000)
    store.client.zadd(keys.TIMERS, {keys.timer(OWNER, name): due_ms})


def bodies(store: Store) -> dict[str, bytes]:
    return {
        leased.id: leased.stored
        for _ in range(9)
        for leased in store.turn(["q"], holder="w", lease_ms=LEASE_MS, room=9).leased
        if store.turn(["q"], holder="w", lease_ms=LEASE_MS, room=0, settles=[(leased.id, leased.fence)])
    }


@pytest.mark.parametrize(
    ("texts", "packed"),
    [
        (FIRST, b"14:\x0b\x0c drei \xc3\xbc \x03 \x02"),
        (SECOND, b"13:\x1e2\x1eone \x0b \x0c\x03 \x02"),
    ],
    ids=["first", "second"],
)
def test_the_last_version_packs(client: Redis, store: Store, texts: Texts, packed: bytes) -> None:
    with release(texts):
        schedule(store, "tea")
        assert client.get(keys.TIMER + OWNER) == b"3:tea3:\x03:\x021:q1:\x01" + packed
        assert [timer.stored for timer in store.timers(OWNER)] == [STORED]


def test_a_text_without_those_of_the_app_has_no_version(client: Redis, store: Store) -> None:
    with release(SECOND):
        schedule(store, "tea", stored=b"coffee")
    with release(FIRST):
        assert [timer.stored for timer in store.timers(OWNER)] == [b"coffee"]


def test_a_release_reads_the_earlier_versions(store: Store) -> None:
    with release(FIRST):
        schedule(store, "tea")
    with release(SECOND):
        store.sweep(LEASE_MS)
        assert bodies(store) == {"7:tea": STORED}


def test_a_timer_of_a_newer_version_waits_for_its_release(client: Redis, store: Store) -> None:
    # Given due timers of two releases
    with release(SECOND):
        schedule(store, "newer", in_ms=-2_000)
    with release(FIRST):
        schedule(store, "own")
        before = client.get(keys.TIMER + OWNER)
        # When the older release sweeps
        swept = store.sweep(LEASE_MS)
        # Then it fires its own timer, and says which version it does not know
        assert (swept.postponed, swept.unknown_version) == (1, 2)
        assert bodies(store) == {"7:own": STORED}
        # And the other one is stored as it was, and due again soon
        record = client.get(keys.TIMER + OWNER)
        assert record
        assert before
        assert before.startswith(record)
        assert swept.next_ms == pytest.approx(5_000, abs=100)
        assert store.sweep(LEASE_MS).postponed == 0
        with pytest.raises(UnknownVersion, match="version 2"):
            store.timers(OWNER)
        cursor = "0"
        while (cursor := store.repair(cursor, LEASE_MS)[0]) != "0":
            pass
        assert client.get(keys.TIMER + OWNER) == record
    # And its own release fires it
    client.zadd(keys.TIMERS, {keys.timer(OWNER, "newer"): 1})
    with release(SECOND):
        assert store.sweep(LEASE_MS).postponed == 0
        assert bodies(store) == {"7:newer": STORED}
    assert not client.exists(keys.TIMERS, keys.TIMER + OWNER)


def test_a_timer_of_another_app_is_left_to_its_workers_for_a_second(client: Redis, store: Store) -> None:
    for _ in range(100):
        begun_s, _ = client.time()  # the clock of the timer
        with release(SECOND):
            schedule(store, "theirs", in_ms=0)
        before = client.get(keys.TIMER + OWNER), client.zscore(keys.TIMERS, keys.timer(OWNER, "theirs"))
        with release(FIRST):
            postponed = store.sweep(LEASE_MS).postponed
        if client.time()[0] == begun_s:
            break
    assert postponed == 0
    assert (client.get(keys.TIMER + OWNER), client.zscore(keys.TIMERS, keys.timer(OWNER, "theirs"))) == before
    # A publisher leaves it, however late it is
    client.zadd(keys.TIMERS, {keys.timer(OWNER, "theirs"): 1})
    before = client.get(keys.TIMER + OWNER), 1
    with release(FIRST):
        store.append([NewMessage("other", "q", STORED, ["other"])])
    assert (client.get(keys.TIMER + OWNER), client.zscore(keys.TIMERS, keys.timer(OWNER, "theirs"))) == before
    with release(SECOND):
        store.sweep(LEASE_MS)
        assert bodies(store)["7:theirs"] == STORED


def test_many_timers_of_a_newer_version_do_not_keep_others_from_firing(client: Redis, store: Store) -> None:
    # Given more timers than a sweep takes, some of them in the hash, and a later one that is readable
    with release(SECOND):
        for number in range(100):
            schedule(store, f"newer {number}", in_ms=-60_000)
    assert client.exists(keys.OVERFLOW + OWNER)
    with release(FIRST):
        schedule(store, "own")
        postponed = [store.sweep(LEASE_MS).postponed for _ in range(3)]
        assert sum(postponed) == 100
        assert bodies(store) == {"7:own": STORED}
    client.zadd(keys.TIMERS, dict.fromkeys(client.zrange(keys.TIMERS, 0, -1), 1.0))
    with release(SECOND):
        store.sweep(LEASE_MS)
        store.sweep(LEASE_MS)
        for _ in range(12):
            bodies(store)
    assert not client.exists(keys.TIMERS, keys.TIMER + OWNER, keys.OVERFLOW + OWNER)
    assert store.pending() == 0


def test_only_scripts_with_timers_have_the_texts() -> None:
    with release(FIRST):
        found = {name for name in ("append", "turn", "sweep", "begin", "end") if "TEXTS" in script(name).source}
    assert found == {"append", "sweep"}


def test_releases_with_other_texts_have_another_digest() -> None:
    with release(FIRST):
        first = digest()
    with release(SECOND):
        assert digest() != first


def test_a_process_has_one_dictionary() -> None:
    with release(FIRST):
        use_texts(())
        use_texts(FIRST)
        with pytest.raises(ValueError, match="share the texts"):
            use_texts(SECOND)


def test_a_version_with_too_many_texts_is_refused() -> None:
    with release(()), pytest.raises(ValueError, match="at most 19 texts"):
        use_texts((("x",) * 20,))
