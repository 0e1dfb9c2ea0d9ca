"""ctx.session on real lanes: reads, writes at the end of the update, and refusals."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore
from redis import Redis
from redis.exceptions import ConnectionError as RedisAwayError

from celery_lanes import Delivery, Lanes, LeaseLost, RedisAway, install
from celery_lanes.protocol import Command, NewMessage, Store, connect, keys
from celery_lanes.runtime import clock
from chatlanes.bot import Bot, Context, SessionError
from chatlanes.bot.loader import load_bot
from chatlanes.bot.session import (
    MOST_BYTES,
    ORDERS_FOR,
    OURS,
    HandlerPlan,
    SessionKey,
    check_keys,
    check_order,
    decode,
    encode,
    session_key_of,
)
from chatlanes.bot.stored import Stored, TooMuchStagedError, UnsafeKeyError
from chatlanes.settings import load
from chatlanes.settings.imports import ImportPathError
from chatlanes.tasks import update as updates
from chatlanes.tasks.bots import Bots
from chatlanes.telegram.flood.parking import Parking, ParkUpdate
from chatlanes.updates.routing import ORDERS, keys_of

MINUTE_MS = 60_000
CHAT, USER = 7, 9
MESSAGE = {"update_id": 1, "message": {"chat": {"id": CHAT}, "from": {"id": USER}}}
OLD, NEW = "session:1/chat:-7", "session:1/chat:-1007"
AWAY = {"update_id": 1, "message": {"chat": {"id": -7}, "migrate_to_chat_id": -1007}}
HERE = {"update_id": 1, "message": {"chat": {"id": -1007}, "migrate_from_chat_id": -7}}


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def lanes(redis_url: str) -> Iterator[Lanes]:
    with Celery("test", broker=redis_url, set_as_current=False) as app:
        yield install(app)


Take = Callable[..., Context]


@pytest.fixture
def take(lanes: Lanes) -> Take:
    """Appends an update and takes the next one as a worker would; returns the context of its handler."""

    def take(
        update: dict[str, Any] = MESSAGE,
        *order: str,
        session: Any = "chat",
        ttl_s: float | None = None,
        number: int | None = 1,
    ) -> Context:
        if number is not None:
            joined = [f"1/{key}" for key in order or ("chat:7",)]
            lanes.store.append([NewMessage(f"1:{number}", "updates.0", "{}", joined)])
        leased = lanes.store.turn(["updates.0"], holder="test", lease_ms=MINUTE_MS, room=1).leased
        [held] = lanes.in_flight.finish_fetch(leased, clock.now_s(), suspects_wait=False)
        lanes.in_flight.claim(held.tag, starts=True)
        delivery = Delivery(lanes, held.tag, held.deadline_s, failed=0, died=0)
        stored, plan = Stored(delivery, Parking()), HandlerPlan(session, ttl_s)
        return Context(update, api=None, stored=stored, plan=plan)  # type: ignore[arg-type]

    return take


def delivery_of(ctx: Context) -> Delivery:
    assert ctx.stored is not None
    return ctx.stored._delivery


def run(ctx: Context, handle: Callable[[Context], Any]) -> None:
    """Runs the handler as chatlanes/tasks/update.py does."""
    updates.run_bot(Bot(handle), ctx)
    settle(ctx)


def settle(ctx: Context) -> None:
    run = updates.Run(None, None, ctx, delivery_of(ctx), Parking())  # type: ignore[arg-type]
    updates.settle(run)


def sessions(redis: Redis) -> dict[str, Any]:
    return {key.decode(): json.loads(redis.get(key)) for key in redis.scan_iter("session:*")}


def state_of(redis: Redis, number: int = 1) -> str:
    return (redis.hget(keys.message(f"1:{number}"), "state") or b"").decode()


def remember(ctx: Context) -> None:
    ctx.session["n"] = ctx.session.get("n", 0) + 1


# -- saved


def test_session_is_saved_with_its_update(take: Take, redis: Redis) -> None:
    # Given two updates of a chat
    first = take()
    take_second = [NewMessage("1:2", "updates.0", "{}", ["1/chat:7"])]
    delivery_of(first).lanes.store.append(take_second)
    # When the first runs
    run(first, remember)
    # Then it is settled and its session is stored; the second becomes ready and continues with that session
    assert (state_of(redis, 1), state_of(redis, 2)) == ("", "ready")
    assert sessions(redis) == {"session:1/chat:7": {"n": 1}}
    run(take(number=None), remember)
    assert sessions(redis) == {"session:1/chat:7": {"n": 2}}
    assert redis.ttl("session:1/chat:7") == -1
    assert int(redis.hget(keys.COUNTS, "settled")) == 2


@pytest.mark.parametrize(
    "handle",
    [
        lambda ctx: None,
        lambda ctx: ctx.session.get("n"),
        lambda ctx: ctx.session["list"].append(2) or ctx.session["list"].pop(),
        lambda ctx: setattr(ctx, "session", {"n": 1, "list": [1]}),
    ],
)
def test_unchanged_session_is_not_written(take: Take, redis: Redis, handle: Callable[[Context], Any]) -> None:
    redis.set("session:1/chat:7", '{"n":1,"list":[1]}')
    ctx = take()
    run(ctx, handle)
    assert ctx.stored is not None
    assert ctx.stored.writes == []
    assert state_of(redis) == "leased"  # the next fetch settles it, after Celery's acknowledgement


@pytest.mark.parametrize(
    ("handle", "after"),
    [
        (lambda ctx: ctx.session["list"].append(2), {"n": 1, "list": [1, 2]}),
        (lambda ctx: ctx.session.pop("n"), {"list": [1]}),
        (lambda ctx: setattr(ctx, "session", {"other": True}), {"other": True}),
        (lambda ctx: ctx.session.clear(), None),
        (lambda ctx: setattr(ctx, "session", {}), None),
    ],
)
def test_changes_are_written_and_empty_sessions_deleted(
    take: Take, redis: Redis, handle: Callable[[Context], Any], after: Any
) -> None:
    redis.set("session:1/chat:7", '{"n":1,"list":[1]}')
    run(take(), handle)
    assert sessions(redis) == ({} if after is None else {"session:1/chat:7": after})
    assert state_of(redis) == ""


def test_unused_session_is_not_read(take: Take, lanes: Lanes) -> None:
    ctx = take()
    with connect("redis://127.0.0.1:1/0") as away:
        lanes.store.client = away
        updates.run_bot(Bot(lambda ctx: None), ctx)
        assert ctx.stored is not None
        assert ctx.stored.writes == []


def test_session_expires_after_its_last_change(take: Take, redis: Redis) -> None:
    run(take(ttl_s=3600.0), remember)
    assert 3590 < redis.ttl("session:1/chat:7") <= 3600


# -- not saved


def test_failed_attempt_leaves_no_change(take: Take, redis: Redis) -> None:
    def fail(ctx: Context) -> None:
        remember(ctx)
        raise LookupError

    ctx = take()
    with pytest.raises(LookupError):
        run(ctx, fail)
    delivery_of(ctx).retry(delay_s=0, problem={})
    delivery_of(ctx).lanes.store.sweep(MINUTE_MS)
    run(take(number=None), remember)
    assert sessions(redis) == {"session:1/chat:7": {"n": 1}}


@pytest.mark.parametrize("value", [{1, 2}, {5: "five"}])
def test_unencodable_session_fails_the_handler(take: Take, redis: Redis, value: object) -> None:
    def handle(ctx: Context) -> None:
        ctx.session["bad"] = value

    ctx = take()
    with pytest.raises(SessionError, match=r"session\['bad'\]"):
        run(ctx, handle)
    assert (sessions(redis), state_of(redis)) == ({}, "leased")


def test_zombie_neither_reads_nor_writes(take: Take, redis: Redis) -> None:
    # Given a handler that has read its session and then lost its lease
    zombie = take()
    remember(zombie)
    late = delivery_of(zombie)
    late.lanes.store.release([(late.id, late.fence)])
    # When another run has finished the update and the zombie ends
    run(take(number=None), remember)
    with pytest.raises(Ignore, match="the lease of 1:1 was lost"):
        run(zombie, lambda ctx: None)
    # Then its change is refused, and it cannot read the session again
    assert sessions(redis) == {"session:1/chat:7": {"n": 1}}
    with pytest.raises(LeaseLost):
        _ = Context(MESSAGE, None, stored=Stored(late, Parking())).session  # type: ignore[arg-type]


# -- while Redis is unreachable


class Flaky(Store):
    """A store that loses its connection, before or after it sends."""

    def __init__(self, lanes: Lanes, times: int, *, after: bool) -> None:
        super().__init__(lanes.store.client)
        self._times, self._after = times, after
        lanes.store = self

    def run_all(self, *commands: Command[Any], together: bool = False) -> list[Any]:
        self._times -= 1
        if self._times >= 0 and not self._after:
            raise RedisAwayError("away")
        answers = super().run_all(*commands, together=together)
        if self._times >= 0:
            raise RedisAwayError("away")
        return answers


def test_commit_that_did_not_arrive_is_repeated(take: Take, lanes: Lanes, redis: Redis) -> None:
    ctx = take()
    remember(ctx)
    Flaky(lanes, 2, after=False)
    run(ctx, lambda ctx: None)
    assert (sessions(redis), state_of(redis)) == ({"session:1/chat:7": {"n": 1}}, "")


def test_commit_with_a_lost_reply_happens_once(take: Take, lanes: Lanes, redis: Redis) -> None:
    ctx = take()
    remember(ctx)
    Flaky(lanes, 1, after=True)
    with pytest.raises(Ignore):
        run(ctx, lambda ctx: None)
    assert (sessions(redis), state_of(redis)) == ({"session:1/chat:7": {"n": 1}}, "")
    lanes.in_flight.reports.read()
    assert not lanes.in_flight.holds(delivery_of(ctx).tag)


def test_update_that_cannot_be_settled_is_released(take: Take, lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes.in_flight, "lease_s", 1.0)  # a step is repeated for one lease
    ctx = take()
    remember(ctx)
    with connect("redis://127.0.0.1:1/0") as away:
        lanes.store = Store(away)
        with pytest.raises(RedisAway):
            run(ctx, lambda ctx: None)
        with pytest.raises(ParkUpdate):
            _ = Context(MESSAGE, None, stored=Stored(delivery_of(ctx), Parking())).session  # type: ignore[arg-type]


# -- limits


@pytest.mark.parametrize(
    ("stage_much", "limit"),
    [
        (lambda ctx: [ctx.later(60, name=f"n{n}") for n in range(1_001)], "at most 1,000 timers"),
        (lambda ctx: [ctx.stored.stage(f"chat:7/{n}", b"v") for n in range(1_001)], "at most 1,000 values"),
        (lambda ctx: [ctx.stored.stage(f"chat:7/{n}", bytes(2**20)) for n in range(17)], "at most 16 MiB"),
        (lambda ctx: [ctx.later(60, "x" * 60_000, f"n{n}") for n in range(300)], "at most 16 MiB"),
    ],
)
def test_update_that_stages_too_much_fails_at_the_call(
    take: Take, redis: Redis, stage_much: Callable[[Context], object], limit: str
) -> None:
    ctx = take()
    with pytest.raises(TooMuchStagedError, match=limit):
        run(ctx, stage_much)
    assert (state_of(redis), redis.exists(keys.TIMERS), sessions(redis)) == ("leased", 0, {})


def test_update_may_stage_as_much_as_the_limits_say(take: Take, redis: Redis) -> None:
    # Given a handler that sets and replaces as many timers and values as it may
    def handle(ctx: Context) -> None:
        assert ctx.stored is not None
        for n in (*range(1_000), *range(1_000)):
            ctx.later(60, name=f"n{n}")
            ctx.stored.stage(f"chat:7/{n}", bytes(16_000))

    # When it has run, then everything is stored, the message is gone, and nothing else is left
    run(take(), handle)
    assert (redis.zcard(keys.TIMERS), len(list(redis.scan_iter("session:*", count=1_000)))) == (1_000, 1_000)
    assert state_of(redis) == ""
    assert list(redis.scan_iter(f"{keys.STAGED}*", count=1_000)) == []


# -- session keys


@pytest.mark.parametrize(
    ("order", "session", "key"),
    [
        (["chat:7"], "chat", "chat:7"),
        (["chat:7", "user:9"], "chat", "chat:7"),
        (["chat:7", "user:9"], "user", "user:9"),
        (["user:9"], "user", "user:9"),
        (["chat:7"], "chat+user", "chat:7/user:9"),
        (["chat:7"], lambda update: "chat:7/cart/1", "chat:7/cart/1"),
        (["shop/3"], lambda update: "shop/3", "shop/3"),
        (["bot"], "chat", "chat:7"),
        (["bot"], "user", "user:9"),
    ],
)
def test_session_key_must_order_its_update(take: Take, redis: Redis, order: list[str], session: Any, key: str) -> None:
    run(take(MESSAGE, *order, session=session), remember)
    assert sessions(redis) == {f"session:1/{key}": {"n": 1}}


@pytest.mark.parametrize(
    ("order", "session", "message"),
    [
        (["user:9"], "chat", r"\(session=chat\) chat:7 cannot be stored with this update, which is ordered by user:9"),
        (["chat:7"], "user", r"user:9 .* ordered by chat:7: another update of user:9 may run at the same time"),
        (["topic:7:3"], "chat", "change ORDER_BY"),
        (["chat:7"], lambda update: "chat:77", "chat:77 cannot be stored"),
        (["chat:7"], lambda update: "everybody", "everybody cannot be stored"),
        ([""], "chat", "which is ordered by nothing"),
        (["chat:7"], lambda update: 7, "must return a text or None, not 7"),
        (["chat:7"], lambda update: None, "this update has no session"),
    ],
)
def test_session_without_a_matching_lane_is_refused(
    take: Take, lanes: Lanes, order: list[str], session: Any, message: str
) -> None:
    if order == [""]:
        lanes.store.append([NewMessage("1:1", "updates.0", "{}", [])])
        ctx = take(session=session, number=None)
    else:
        ctx = take(MESSAGE, *order, session=session)
    with pytest.raises(SessionError, match=message):
        _ = ctx.session
    with pytest.raises(SessionError, match=message):
        ctx.session = {}


def test_session_without_lanes_must_be_assigned() -> None:
    ctx = Context(MESSAGE, api=None)  # type: ignore[arg-type]
    with pytest.raises(SessionError, match="this update has no lane"):
        _ = ctx.session
    ctx.session = {"n": 1}
    remember(ctx)
    assert ctx.session == {"n": 2}
    with pytest.raises(SessionError, match="this update has no lane"):
        ctx.stage()


def test_only_a_dict_can_be_assigned() -> None:
    ctx = Context(MESSAGE, api=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a session is a dict, not a list"):
        ctx.session = []  # type: ignore[assignment]
    for name in ("sesion", "update"):
        with pytest.raises(AttributeError, match=f"ctx.{name} cannot be assigned"):
            setattr(ctx, name, {})


shopper = Bot(remember, session="user")


def test_unprotected_session_is_refused_at_start() -> None:
    path = f"{__name__}:shopper"
    Bots.load(load({"BOT_TOKEN": "1:T", "BOT": path, "ORDER_BY": "chat+user"}, env_file=None))
    with pytest.raises(ImportPathError, match=rf"BOT={path}: session='user' does not work with ORDER_BY=chat, .*\.$"):
        Bots.load(load({"BOT_TOKEN": "1:T", "BOT": path}, env_file=None))


# -- migration of a group to a supergroup


BOTH = ("chat:-7", "chat:-1007")


@pytest.mark.parametrize("update", [AWAY, HERE], ids=["to", "from"])
@pytest.mark.parametrize(
    ("handle", "after"),
    [
        (lambda ctx: None, {"n": 5}),
        (lambda ctx: ctx.session["n"], {"n": 5}),
        (remember, {"n": 6}),
        (lambda ctx: ctx.session.clear(), None),
    ],
)
def test_first_migration_message_moves_the_session(
    take: Take, redis: Redis, update: dict[str, Any], handle: Callable[[Context], Any], after: Any
) -> None:
    redis.set(OLD, '{"n":5}', ex=3600)
    run(take(update, *BOTH), handle)
    assert sessions(redis) == ({} if after is None else {NEW: after})
    # And the expiry is kept, unless the session was written
    assert after != {"n": 5} or 3590 < redis.ttl(NEW) <= 3600


def test_second_migration_message_finds_the_moved_session(take: Take, redis: Redis) -> None:
    redis.set(OLD, '{"n":5}')
    run(take(AWAY, *BOTH, number=1), remember)
    run(take(HERE, *BOTH, number=2), remember)
    assert sessions(redis) == {NEW: {"n": 7}}


def test_migrated_session_replaces_the_supergroups(take: Take, redis: Redis) -> None:
    redis.mset({OLD: '{"n":5}', NEW: '{"n":1}'})
    run(take(HERE, *BOTH), remember)
    assert sessions(redis) == {NEW: {"n": 6}}


def test_missing_session_is_not_moved(take: Take, redis: Redis) -> None:
    ctx = take(AWAY, *BOTH)
    run(ctx, lambda ctx: None)
    assert sessions(redis) == {}


def test_session_is_not_moved_in_an_order_without_chats(take: Take, redis: Redis) -> None:
    redis.set(OLD, '{"n":5}')
    run(take(AWAY, "user:9"), lambda ctx: None)
    assert sessions(redis) == {OLD: {"n": 5}}


# -- adapters


def test_adapter_stores_its_own_bytes_in_the_same_commit(take: Take, redis: Redis) -> None:
    redis.set("session:1/chat:7/old", b"\x00")

    def handle(ctx: Context) -> None:
        assert ctx.stored is not None
        assert ctx.stored.load("chat:7/fsm") is None
        ctx.stored.stage("chat:7/fsm", b"\xff", ttl_s=60.0)
        assert ctx.stored.load("chat:7/fsm") == b"\xff"
        ctx.stored.stage("chat:7/old", None)
        assert ctx.stored.load("chat:7/old") is None
        with pytest.raises(UnsafeKeyError):
            ctx.stored.stage("chat:8/fsm", b"")
        remember(ctx)

    run(take(), handle)
    assert redis.get("session:1/chat:7/fsm") == b"\xff"
    assert redis.ttl("session:1/chat:7/fsm") in (59, 60)
    assert redis.get("session:1/chat:7") == b'{"n":1}'
    assert not redis.exists("session:1/chat:7/old")
    assert state_of(redis) == ""


def test_coroutine_has_the_same_session(take: Take, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(ctx: Context) -> None:
        ctx.session["n"] = 1
        ctx.session = {**ctx.session, "m": 2}

    monkeypatch.setitem(globals(), "coroutine", handle)
    updates_bot = load_bot(f"{__name__}:coroutine")
    ctx = take()
    updates.run_bot(updates_bot, ctx)
    settle(ctx)
    assert sessions(redis) == {"session:1/chat:7": {"n": 1, "m": 2}}


def message(chat: int, user: int | None = 9, **more: Any) -> dict[str, Any]:
    return {"update_id": 1, "message": {"chat": {"id": chat}, **({"from": {"id": user}} if user else {}), **more}}


TOPIC = message(-7, is_topic_message=True, message_thread_id=3)
AWAY, HERE = message(-7, migrate_to_chat_id=-1007), message(-1007, migrate_from_chat_id=-7)
QUERY = {"update_id": 1, "inline_query": {"id": "q", "from": {"id": 9}}}
POLL = {"update_id": 1, "poll": {"id": "p"}}
NOBODY = {"update_id": 1, "new_kind": {}}


@pytest.mark.parametrize(
    ("session", "update", "key", "moves_from"),
    [
        ("chat", message(-7), "chat:-7", None),
        ("chat", TOPIC, "chat:-7", None),
        ("chat", QUERY, "chat:9", None),
        ("chat", POLL, "poll:p", None),
        ("chat", NOBODY, None, None),
        ("chat", AWAY, "chat:-1007", "chat:-7"),
        ("chat", HERE, "chat:-1007", "chat:-7"),
        ("user", message(-7), "user:9", None),
        ("user", AWAY, "user:9", None),
        ("user", QUERY, "user:9", None),
        ("user", NOBODY, None, None),
        ("topic", TOPIC, "topic:-7:3", None),
        ("topic", message(-7), "chat:-7", None),
        ("topic", HERE, "chat:-1007", "chat:-7"),
        ("chat+user", message(-7), "chat:-7/user:9", None),
        ("chat+user", message(9), "chat:9/user:9", None),
        ("chat+user", POLL, "poll:p", None),
        ("chat+user", NOBODY, None, None),
        (lambda update: f"chat:{update['message']['chat']['id']}/cart", message(-7), "chat:-7/cart", None),
        (lambda update: None, message(-7), None, None),
    ],
)
def test_session_key(session: Any, update: dict[str, Any], key: str | None, moves_from: str | None) -> None:
    assert session_key_of(update, session) == SessionKey(key, moves_from)


@pytest.mark.parametrize("order_by", ORDERS)
@pytest.mark.parametrize("session", ["user", "chat+user", "topic"])
@pytest.mark.parametrize("update", [message(-7), TOPIC, message(9)], ids=["group", "topic", "private"])
def test_session_key_is_one_of_the_lane_keys(session: str, order_by: str, update: dict[str, Any]) -> None:
    if order_by not in ORDERS_FOR[session]:
        with pytest.raises(ValueError, match=f"does not work with ORDER_BY={re.escape(order_by)}"):
            check_order(session, order_by)
        return
    check_order(session, order_by)
    key = str(session_key_of(update, session).key)
    order = keys_of(update, order_by)
    assert order == ["bot"] or key in order or key.partition("/")[0] in order


def test_default_keys_and_functions_are_accepted() -> None:
    for order_by in (*ORDERS, "mybot:order"):
        check_order("chat", order_by)
        check_order(lambda _: None, order_by)
    for session in OURS:
        check_order(session, "mybot:order")


class Level(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"n": 1, "text": "дом 👍", "none": None, "yes": True, "float": 0.1, "big": 10**30},
        {"nested": {"list": [1, [2, {"three": 3}]], "": {}}},
        {"half an emoji": "\ud83d"},
        {"\ud83d": 1},
    ],
)
def test_json_values_round_trip(data: dict[str, Any]) -> None:
    check_keys(data)
    assert decode(encode(data), "session:1/chat:7") == data


def test_tuples_and_enums_become_plain_values() -> None:
    assert decode(encode({"pair": (1, 2), "colour": Level.RED}), "") == {"pair": [1, 2], "colour": 1}


def holding_itself() -> dict[str, Any]:
    data: dict[str, Any] = {"a": []}
    data["a"].append(data)
    return data


def deep() -> dict[str, Any]:
    data: dict[str, Any] = {}
    for _ in range(100_000):
        data = {"a": data}
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": {1, 2}}, r"session\['a'\] is a set, which JSON cannot represent"),
        ({"a": [0, {"b": datetime.date(2026, 1, 1)}]}, r"session\['a'\]\[1\]\['b'\] is a date, "),
        ({"a": ({"b": b"x"},)}, r"session\['a'\]\[0\]\['b'\] is a bytes, "),
        ({"a": decimal.Decimal(1)}, r"session\['a'\] is a Decimal, "),
        ({"a": math.nan}, r"session\['a'\] is nan, which JSON cannot represent"),
        ({"a": [math.inf]}, r"session\['a'\]\[0\] is inf, "),
        ({"a": {(1, 2): 3}}, r"session\['a'\] has the key \(1, 2\) \(tuple\)"),
        (holding_itself(), r"session\['a'\]\[0\] contains itself"),
        (deep(), "the session is nested too deeply"),
        ({"a": "x" * MOST_BYTES}, r"the session has 1,048,584 bytes as JSON, and at most 1,048,576 are allowed"),
    ],
)
def test_error_names_path_and_type(data: dict[str, Any], message: str) -> None:
    with pytest.raises(SessionError, match=message):
        encode(data)


@pytest.mark.parametrize("key", [5, 0.5, True, None])
def test_keys_must_be_strings(key: object) -> None:
    with pytest.raises(SessionError, match=rf"session\['carts'\] has the key {key!r} \({type(key).__name__}\)"):
        check_keys({"carts": {key: "apples"}})


@pytest.mark.parametrize("stored", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000])
def test_invalid_stored_value_is_named_with_its_key(stored: bytes) -> None:
    with pytest.raises(SessionError, match="the value of session:1/chat:7 in Redis is not a JSON object"):
        decode(stored, "session:1/chat:7")
