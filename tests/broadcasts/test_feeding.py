"""How much a feeder feeds beside other broadcasts, and beside messages that were buried; on a real Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Store, connect
from chatlanes.broadcasts import Call, Feeder, feed_message, keys
from chatlanes.settings import Settings

BOT_ID = 1
RATE = 20
QUEUE = "broadcasts.0"


@pytest.fixture
def feeder(redis_url: str) -> Iterator[Feeder]:
    """Of a bot with two broadcasts that run and have fed nothing."""
    with connect(redis_url) as client:
        store, settings = Store(client), Settings(bot_token=f"{BOT_ID}:A", _env_file=None)
        feeder = Feeder(store, settings)
        store.append([feed_message(settings, "b1")])  # the one that runs
        for number, id_ in enumerate(("b1", "b2")):
            chats = range(1 + number * 1000, 501 + number * 1000)
            feeder.broadcasts.store(id_, Call("sendMessage", {"text": "hi"}), chats, RATE)
            feeder.feed(id_)
        yield feeder


def fed(feeder: Feeder, id_: str) -> int:
    """Feed a broadcast that has fed nothing for a long time. Returns how many recipients were fed."""
    before = feeder.broadcasts.progress(id_).fed
    feeder.broadcasts.client.hset(f"{keys.BROADCAST}{BOT_ID}:{id_}", "fed_us", 0)
    feeder.feed(id_)
    return feeder.broadcasts.progress(id_).fed - before


def last_fed(ms_ago: int) -> Callable[[Feeder], object]:
    """A step that sets when the first broadcast was last fed."""

    def step(feeder: Feeder) -> None:
        then_ms = inspection.now_us(feeder.broadcasts.client) // 1000 - ms_ago
        feeder.broadcasts.client.zadd(f"{keys.FEEDING}{BOT_ID}", {"b1": then_ms})

    return step


def end(feeder: Feeder) -> None:
    feeder.broadcasts.end(feeder.broadcasts.progress("b1"), "done", {})


def test_broadcasts_of_one_bot_share_its_rate(feeder: Feeder) -> None:
    assert [fed(feeder, "b1"), fed(feeder, "b2")] == [RATE, RATE / 2]


@pytest.mark.parametrize(
    "leave", [last_fed(6_000), last_fed(-3_600_000), end], ids=["not fed", "clock set back", "ended"]
)
def test_one_that_is_not_fed_any_more_leaves_its_part(feeder: Feeder, leave: Callable[[Feeder], object]) -> None:
    fed(feeder, "b1")
    leave(feeder)
    assert fed(feeder, "b2") == RATE


def bury(feeder: Feeder) -> int:
    """Bury the messages of all recipients. Returns how many."""
    store = Store(feeder.broadcasts.client)
    turned = store.turn([QUEUE], holder="east:1:a", lease_ms=60_000, room=RATE + 1)
    recipients = [message for message in turned.leased if "feed" not in message.id]
    for message in recipients:
        store.bury(message.id, message.fence, {"type": "WorkerLost", "message": "out of memory"})
    return len(recipients)


def test_recipients_whose_messages_were_buried_hold_up_nobody(feeder: Feeder) -> None:
    # Given as many recipients without a result as may be pending
    assert [fed(feeder, "b1"), fed(feeder, "b1")] == [RATE, 0]
    # When their messages are buried
    assert bury(feeder) == RATE
    # Then the next ones are fed
    assert fed(feeder, "b1") == RATE


def test_recipients_of_a_cancelled_broadcast_that_were_buried_are_listed(feeder: Feeder) -> None:
    fed(feeder, "b1")
    bury(feeder)
    feeder.cancel("b1")
    feeder.feed("b1")
    assert feeder.broadcasts.progress("b1").counts == {"failed": RATE, "dropped": 500 - RATE}
    assert sorted(chat for chat, *_ in feeder.broadcasts.missed("b1")) == [*range(1, RATE + 1)]


def test_cancelling_again_ends_a_broadcast_whose_cancel_died(feeder: Feeder) -> None:
    # Given a paused broadcast, so that it has no feeder, and a cancel that died after its first step
    feeder.broadcasts.set_state("b2", "paused", only_from=("running",))
    feeder.broadcasts.set_state("b2", "cancelled", only_from=("paused",))
    assert not has_feeder(feeder, "b2")
    # When it is cancelled again
    assert feeder.cancel("b2")
    # Then it has a feeder, which ends it
    assert has_feeder(feeder, "b2")
    feeder.feed("b2")
    now = feeder.broadcasts.progress("b2")
    assert (now.state, now.counts, now.ended_ms > 0) == ("cancelled", {"dropped": 500}, True)
    assert not feeder.cancel("b2")


def has_feeder(feeder: Feeder, id_: str) -> bool:
    """True if a message that feeds the broadcast waits. It is leased."""
    turned = Store(feeder.broadcasts.client).turn([QUEUE], holder="east:1:a", lease_ms=60_000, room=10)
    return any(message.id.startswith(f"{BOT_ID}:broadcast:{id_}:feed:") for message in turned.leased)
