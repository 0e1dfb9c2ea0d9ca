"""A call is appended once for each key, whichever process sends it or dies, and its result is found by its id."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

import chatlanes
from celery_lanes.protocol import Command, DurableAppends, Leased, Store, keys
from chatlanes.outbox import Outbox, OutboxCall, SendError, State, ending
from chatlanes.outbox.results import SENDING, SENT
from chatlanes.telegram import BotApiError
from chatlanes.telegram.errors import BlockedByUser
from tests.support import ROOT
from tests.support.outside import outside
from tests.support.pipeline import BOT_ID, TOKEN

SENDER = """
import sys, time
from pathlib import Path
import chatlanes.outbox
chatlanes.outbox.outbox()
print("ready", flush=True)
while not Path("go").exists():
    time.sleep(0.001)
print(*{chatlanes.send(7, "sendMessage", once=f"key {n}", text=sys.argv[1]) for n in range(20)}, sep="\\n")
"""


def send(once: str | None = None) -> str:
    return chatlanes.send(7, "sendMessage", once=once, text="hi")


def appended(redis: Redis) -> int:
    return int(redis.hget(keys.COUNTS, "appended") or 0)


def lease(redis: Redis, id_: str) -> Leased:
    queue = (redis.hget(keys.message(id_), "queue") or b"").decode()
    [leased] = Store(redis).turn([queue], holder="east:1:a", lease_ms=60_000, room=1).leased
    assert leased.id == id_
    return leased


def end(redis: Redis, id_: str, **how: object) -> None:
    """As the run of the call does it."""
    store, leased = Store(redis), lease(redis, id_)
    state = how.pop("state", State.SENT)
    store.commit(id_, leased.fence, ending(id_, 1_000, state, **how))  # type: ignore[arg-type]


def test_each_call_without_a_key_is_appended(here: Outbox, redis: Redis) -> None:
    assert len({send(), send(), send()}) == appended(redis) == 3


def test_a_key_is_appended_once(here: Outbox, redis: Redis) -> None:
    # Given a call that waits
    id_ = send("a")
    # Then the same key gives its id, and appends nothing, also when it has ended
    assert (send("a"), appended(redis)) == (id_, 1)
    end(redis, id_)
    assert (send("a"), appended(redis), Store(redis).pending()) == (id_, 1, 0)
    # And another key is another call
    assert send("b") != id_
    assert appended(redis) == 2


def test_threads_with_one_key_append_one_call(here: Outbox, redis: Redis) -> None:
    barrier = threading.Barrier(8)

    def together(n: int) -> set[str]:
        barrier.wait()
        return {send(f"key {k}") for k in range(10)}

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(together, range(8)))
    assert all(ids == found[0] for ids in found)
    assert appended(redis) == 10


@pytest.mark.slow
def test_two_processes_with_one_key_append_one_call(here: Outbox, redis: Redis, redis_url: str, tmp_path: Path) -> None:
    # Given two processes that are about to send with the same twenty keys
    env = {**outside(), "PYTHONPATH": str(ROOT), "REDIS_URL": redis_url, "BOT_TOKEN": TOKEN}
    senders = [
        subprocess.Popen([sys.executable, "-c", SENDER, name], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    try:
        for sender in senders:
            assert sender.stdout is not None
            assert sender.stdout.readline() == "ready\n"
        # When they send at the same time
        (tmp_path / "go").touch()
        ids = [set(sender.communicate(timeout=120)[0].split()) for sender in senders]
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()
    # Then both have the same ids, and each call was appended once
    assert ids[0] == ids[1]
    assert len(ids[0]) == appended(redis) == Store(redis).pending() == 20


def test_a_sender_that_died_before_its_append_keeps_nobody_from_it(here: Outbox, redis: Redis) -> None:
    # Given the guard of a sender that died right after it
    id_ = send("a")
    end(redis, id_)
    redis.delete(SENT + id_)
    redis.hset(SENDING + id_, "fence", "new")
    # When the key is sent again
    assert send("a") == id_
    # Then it is appended
    assert appended(redis) == 2
    assert redis.hget(SENDING + id_, "fence") == b"appended"


def test_a_call_that_ends_between_look_and_append_is_not_appended_again(
    here: Outbox, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a call that has waited so long that its guard has expired
    id_ = send("a")
    redis.delete(SENDING + id_)
    look, looks = Outbox._look, list[State]()

    def look_and_wait(self: Outbox, appends: DurableAppends, call: OutboxCall) -> State:
        looks.append(look(self, appends, call))
        if len(looks) == 1:
            end(redis, id_)
        return looks[-1]

    monkeypatch.setattr(Outbox, "_look", look_and_wait)
    # When the same key is sent, and the call ends before the append
    assert send("a") == id_
    # Then the append is refused, and the second look finds the result
    assert looks == [State.UNKNOWN, State.SENT]
    assert (appended(redis), Store(redis).pending()) == (1, 0)


def test_a_call_that_still_waits_is_not_appended_again_without_its_guard(here: Outbox, redis: Redis) -> None:
    id_ = send("a")
    redis.delete(SENDING + id_)
    assert (send("a"), appended(redis)) == (id_, 1)


def test_the_backlog_is_bounded(here: Outbox, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "settings", here.settings.model_copy(update={"max_pending": 2}))
    ids = [send("a"), send()]
    with pytest.raises(chatlanes.OutboxFullError, match="has reached MAX_PENDING \\(2\\): send the call later"):
        send()
    assert send("a") == ids[0]
    # When there is room again
    end(redis, ids[0])
    assert send()
    assert appended(redis) == 3


def test_without_redis_it_is_unknown_whether_the_call_was_stored(here: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Outbox(here.settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
    monkeypatch.setattr("chatlanes.outbox.sending.outbox", lambda: away)
    with pytest.raises(RedisConnectionError):
        send("a")


def test_results(here: Outbox, redis: Redis) -> None:
    # A call that waits
    id_ = send()
    assert chatlanes.sent(id_) == chatlanes.Sent(id_, "waiting")
    # One that was sent: with what Telegram returned
    end(redis, id_, result={"message_id": 3})
    assert chatlanes.sent(id_) == chatlanes.Sent(id_, "sent", {"message_id": 3}, ended_ms=1_000)
    assert 47 * 3600 < redis.ttl(SENT + id_) <= 48 * 3600
    assert not redis.exists(SENDING + id_)
    # One that was refused: with the error that a handler would get
    refused = BlockedByUser("sendMessage", 7, "Forbidden: bot was blocked by the user", 403)
    id_ = send()
    end(redis, id_, state=State.REFUSED, error=refused, why=refused.description)
    found = chatlanes.sent(id_)
    assert (found.state, found.result, found.why) == ("refused", None, refused.description)
    assert isinstance(found.error, BlockedByUser)
    assert (found.error.code, str(found.error)) == (403, str(refused))
    # One of a class that only a newer release has
    id_ = send()
    end(redis, id_, state=State.REFUSED, error=refused)
    redis.set(SENT + id_, (redis.get(SENT + id_) or b"").replace(b"BlockedByUser", b"NewError"))
    assert type(chatlanes.sent(id_).error) is BotApiError
    # One with a result that is too long to keep
    id_ = send()
    end(redis, id_, result="x" * 2**20)
    assert chatlanes.sent(id_).why == "its result was too long to store"
    # One that nobody has sent, or that ended long ago
    assert chatlanes.sent(f"{BOT_ID}:send:1").state == "unknown"


@pytest.mark.parametrize("id_", ["", "7", f"{BOT_ID}:12", None])
def test_only_ids_of_calls_have_results(here: Outbox, id_: str) -> None:
    with pytest.raises(SendError, match="is not the id of a call of the outbox"):
        chatlanes.sent(id_)


def test_a_buried_call_says_why(here: Outbox, redis: Redis) -> None:
    id_ = send("a")
    Store(redis).bury(id_, lease(redis, id_).fence, {"type": "NetworkError", "message": "no answer"})
    assert chatlanes.sent(id_) == chatlanes.Sent(id_, "buried", why="NetworkError: no answer")
    assert (send("a"), appended(redis)) == (id_, 1)


def test_the_id_of_a_call_that_another_process_has_appended_is_durable(
    here: Outbox, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a call whose sender may still wait for the disk
    id_, write, written = send("a"), DurableAppends.write, list[str]()

    def note(self: DurableAppends, command: Command[int]) -> int:
        written.append(str(command.arguments[0]))
        return write(self, command)

    monkeypatch.setattr(DurableAppends, "write", note)
    # When another one sends the same key, it waits for the disk, too
    assert send("a") == id_
    assert written == ["EXPIRE"]


def test_connections_that_redis_has_closed_are_replaced(here: Outbox, redis: Redis) -> None:
    id_ = send("a")
    assert chatlanes.sent(id_).state == "waiting"
    redis.client_kill_filter(_type="normal", skipme=True)
    assert send("b")
    redis.client_kill_filter(_type="normal", skipme=True)
    assert chatlanes.sent(id_).state == "waiting"
    assert appended(redis) == 2
