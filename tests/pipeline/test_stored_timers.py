"""The stored form of timers is that of every release: it is written as they wrote it, and read as they meant it."""

from __future__ import annotations

import pytest
from redis import Redis

from celery_lanes.errors import UnknownVersion
from celery_lanes.protocol import NewMessage, Store, connect, keys, use_texts
from chatlanes.updates.timer_texts import TIMER_TEXTS
from tests.pipeline.conftest import MakePipeline
from tests.support.waiting import until

AT_MS = 4_102_444_800_000
END = b',{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
#: owner, the message as its worker gets it, and the bytes in Redis: each field after its length, without the texts that
#: many timers share (timer_packing.lua).
STORED = {
    "private chat": (
        "7/chat:5",
        b'{"headers":{"task":"tasks.update","argsrepr":"(timer, chat 5)"}}\n'
        b'[[{"timer":{"name":"tea","data":1},"chat":{"id":5,"type":"private"},"from":{"id":5}}]' + END,
        b'3:tea9:\x03:timer:\x049:updates.01:\x0119:\x0b\x04)\x0e\x10\x02"\x111}\x12\x04\x13\x15\x04}}]\x0f',
    ),
    "supergroup": (
        "7/chat:-1005",
        b'{"headers":{"task":"tasks.update","argsrepr":"(timer, chat -1005)"}}\n'
        b'[[{"timer":{"name":"tea","data":1},"chat":{"id":-1005,"type":"supergroup"},"from":{"id":5}}]' + END,
        b'3:tea9:\x03:timer:\x049:updates.01:\x0119:\x0b\x04)\x0e\x10\x02"\x111}\x12\x04\x14\x155}}]\x0f',
    ),
}


@pytest.fixture(autouse=True)
def texts() -> None:
    use_texts(TIMER_TEXTS)


@pytest.mark.parametrize("kind", STORED)
def test_timers_are_stored_as_in_earlier_releases(redis_url: str, kind: str) -> None:
    owner, message, stored = STORED[kind]
    with connect(redis_url) as client:
        lane = NewMessage(f"7:timer:{owner.partition(':')[2]}", "updates.0", message, [owner])
        Store(client).schedule(lane, owner, "tea", at_ms=AT_MS)
        assert client.get(keys.TIMER + owner) == stored


@pytest.mark.parametrize("kind", STORED)
def test_timers_of_earlier_releases_are_read(redis_url: str, kind: str) -> None:
    owner, message, stored = STORED[kind]
    with connect(redis_url) as client:
        _put(client, owner, stored)
        [timer] = Store(client).timers(owner)
    assert (timer.stored, timer.lanes, timer.queue) == (message, [owner], "updates.0")


def test_every_shared_text_has_its_code(redis_url: str) -> None:
    codes = bytes(range(11, 22))
    with connect(redis_url) as client:
        _put(client, "o", b"3:tea1:i1:q1:l%d:%s" % (len(codes), codes))
        [timer] = Store(client).timers("o")
    assert timer.stored == (
        b'{"headers":{"task":"tasks.update","argsrepr":"(timer, chat ' + b'{"headers":{"task":"' + b'","argsrepr":"'
        b'"}}\n[[' + END + b'{"timer":{"name":"' + b',"data":' + b',"chat":{"id":' + b',"type":"private"}'
        b',"type":"supergroup"}' + b',"from":{"id":'
    )


def test_version_1_of_the_texts_has_no_more_codes(redis_url: str) -> None:
    """A release that has another one in this version writes what earlier releases cannot read."""
    with connect(redis_url) as client:
        _put(client, "o", b"3:tea1:i1:q1:l1:\x16")
        with pytest.raises(UnknownVersion, match="version 1"):
            Store(client).timers("o")


def test_a_worker_postpones_timers_of_a_newer_release(make_pipeline: MakePipeline) -> None:
    # Given a due timer of this release, and one of a newer one in another chat
    pipeline = make_pipeline(BOT="tests.support.timer_bot:bot")
    owner, _, stored = STORED["private chat"]
    newer = b"3:tea9:\x03:timer:\x049:updates.01:\x014:\x1e2\x1e\x0b"
    _put(pipeline.redis, "7/chat:6", newer, at_ms=1)
    _put(pipeline.redis, owner, stored, at_ms=1)
    # When a worker runs
    worker = pipeline.worker()
    # Then its log names the version, and the timer of this release fires
    worker.tells("postponed 1 timers by 5 s, because one is packed with version 2 of its app's texts")
    until(lambda: pipeline.count("fired") == 1)
    assert not pipeline.redis.exists(keys.TIMER + owner)
    # And the other one is left as it is, and tried again
    until(lambda: worker.log.count("postponed 1 timers") == 2)
    assert pipeline.redis.get(keys.TIMER + "7/chat:6") == newer


def _put(client: Redis, owner: str, stored: bytes, at_ms: int = AT_MS) -> None:
    client.set(keys.TIMER + owner, stored)
    client.zadd(keys.TIMERS, {keys.timer(owner, "tea"): at_ms})
