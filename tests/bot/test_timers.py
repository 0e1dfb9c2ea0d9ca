"""ctx.later, ctx.cancel, ctx.timers and ctx.timer in contexts made by hand: arguments and errors."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from celery_lanes.protocol import CancelTimer, MoveTimer, Read, Set, SetTimer, StoredTimer
from chatlanes.bot import Bot, Context
from chatlanes.bot.bot import NoHandlerError
from chatlanes.bot.session import HandlerPlan
from chatlanes.bot.timers import Migration, Timers, When, _moves, _place, content_of, due_of, set_again
from chatlanes.updates import by_chat, by_topic, by_user, parse
from chatlanes.updates.intake import pack_update

UPDATE = {"update_id": 5, "message": {"message_id": 3, "chat": {"id": 7, "type": "private"}, "from": {"id": 7}}}


def context(update: dict[str, Any] = UPDATE) -> Context:
    return Context(update, None)  # type: ignore[arg-type]


def test_a_context_made_by_hand_lists_its_timers() -> None:
    ctx = context()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert ctx.later(tomorrow, [1, "é"], "b") == "b"
    assert ctx.later(60.5) == "5/1"
    assert ctx.later(timedelta(hours=1)) == "5/2"
    ctx.later(1, name="c")
    ctx.later(2, name="c")
    ctx.cancel("5/2")
    ctx.cancel("nothing")
    assert [timer.name for timer in ctx.timers()] == ["c", "5/1", "b"]
    [_, _, last] = ctx.timers()
    assert (last.data, last.due) == ([1, "é"], tomorrow.replace(microsecond=last.due.microsecond))
    assert "é" not in repr(last)


def test_data_is_copied() -> None:
    ctx, data = context(), {"n": [1]}
    ctx.later(1, data)
    data["n"].append(2)
    assert ctx.timers()[0].data == {"n": [1]}


@pytest.mark.parametrize("past", [datetime(2020, 1, 1, tzinfo=UTC), -5, -(10**400), timedelta(seconds=-1), -math.inf])
def test_a_time_in_the_past_is_now(past: When) -> None:
    ctx = context()
    ctx.later(past)
    assert abs((ctx.timers()[0].due - datetime.now(UTC)).total_seconds()) < 60


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((math.nan,), "later(nan): a timer may be set for at most ten years from now"),
        ((math.inf,), "at most ten years from now"),
        ((10**400,), "at most ten years from now"),
        ((datetime(2100, 1, 1, tzinfo=UTC),), "at most ten years from now"),
        ((datetime(2030, 1, 1),), "a datetime needs a time zone, as in datetime.now(UTC)"),
        ((1, {"a": {1, 2}}), "later(): data['a'] is a set, which JSON cannot represent"),
        ((1, {1: 2}), "later(): data has the key 1 (int): JSON keys are text"),
        ((1, math.nan), "later(): data is nan, which JSON cannot represent"),
        ((1, "x" * 65_600), "the data has 65,602 bytes as JSON, and at most 65,536 are allowed"),
        ((1, None, ""), "'' is not a name of a timer: it has 1 to 256 characters, no control characters"),
        ((1, None, "a\nb"), "is not a name of a timer"),
        ((1, None, "x" * 257), "is not a name of a timer"),
    ],
)
def test_wrong_values_are_refused_at_once(arguments: tuple[Any, ...], sentence: str) -> None:
    ctx = context()
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ctx.later(*arguments)
    assert ctx.timers() == []


@pytest.mark.parametrize("arguments", [("1",), (True,), (None,), (1, None, 7)])
def test_values_of_another_type_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        context().later(*arguments)


def test_a_timer_runs_on_timer_with_what_a_context_has() -> None:
    seen = []
    update = {"timer": {"name": "tea", "data": 5, "chat": {"id": 7}, "from": {"id": 9}}}
    ctx = context(update)
    Bot(lambda ctx: seen.append("handle"), on_timer=lambda ctx: seen.append(ctx.timer))(ctx)
    [timer] = seen
    assert (timer.name, timer.data, timer.late_s) == ("tea", 5, 0)
    assert (ctx.kind, ctx.chat_id, ctx.user_id, ctx.message) == ("timer", 7, 9, None)
    with pytest.raises(LookupError, match="a timer has no update_id"):
        _ = ctx.update_id


def test_a_bot_without_on_timer_runs_no_timer() -> None:
    with pytest.raises(NoHandlerError, match="the timer 'tea' is due, but the bot has no on_timer"):
        Bot(lambda ctx: None)(context({"timer": {"name": "tea"}}))


def test_an_update_of_telegram_is_not_a_timer() -> None:
    """Telegram may add a kind of this name."""
    assert Bot(lambda ctx: "handle", on_timer=lambda ctx: "timer")(context({"update_id": 1, "timer": {}})) == "handle"
    with pytest.raises(LookupError, match="an update of kind message is not a timer"):
        _ = context().timer


GROUP = {"id": -5, "type": "supergroup"}


@pytest.mark.parametrize(
    "update",
    [
        UPDATE,
        {
            "update_id": 1,
            "message": {"chat": GROUP, "from": {"id": 9}, "message_thread_id": 4, "is_topic_message": True},
        },
        {"update_id": 1, "business_message": {"chat": {"id": 7}, "business_connection_id": "b1", "from": {"id": 7}}},
        {"update_id": 1, "callback_query": {"from": {"id": 9}, "data": "x", "message": {"chat": GROUP}}},
        {"update_id": 1, "inline_query": {"id": "1", "from": {"id": 9}, "query": ""}},
        {"update_id": 1, "poll": {"id": "77"}},
        {"update_id": 1, "message": {"chat": GROUP, "from": {"id": 1087968824}, "sender_chat": {"id": -100}}},
        {"update_id": 1, "guest_message": {"chat": GROUP, "from": {"id": 9}, "guest_query_id": "g"}},
        {"update_id": 1, "channel_post": {"chat": {"id": -9, "type": "channel"}}},
        {"update_id": 1, "message_reaction": {"chat": GROUP, "user": {"id": 9}}},
    ],
)
def test_a_timer_has_the_place_of_its_update(update: dict[str, Any]) -> None:
    of_update, of_timer = parse(update), parse({"timer": {"name": "a", **_place(parse(update))}})
    assert of_timer.kind == "timer"
    assert (of_timer.chat, of_timer.user, of_timer.topic) == (of_update.chat, of_update.user, of_update.topic)
    for order in (by_chat, by_topic, by_user):
        assert order(of_timer) == order(of_update)


class Writes:
    """The part of Stored that timers use."""

    bot_id, message_id = "1", "1:timer:90000:12"

    def __init__(self) -> None:
        self.numbers = iter(range(1, 9))
        self.staged: list[SetTimer | CancelTimer] = []

    def stage_timer(self, write: SetTimer | CancelTimer) -> None:
        self.staged.append(write)


def timers(update: dict[str, Any], plan: HandlerPlan | None = None) -> tuple[Timers, Writes]:
    writes = Writes()
    return Timers(update, plan or HandlerPlan(), writes), writes  # type: ignore[arg-type]


def test_a_timer_inherits_lanes_and_queue_of_its_update() -> None:
    made, writes = timers(UPDATE)
    assert made.set(1.5, None, None) == "timer:90000:12/1"
    made.cancel("b")
    [first, second] = writes.staged
    assert isinstance(first, SetTimer)
    assert (first.owner, first.id, first.queue, list(first.lanes)) == ("1/chat:7", "1:timer:", "", [])
    assert (first.at_ms, first.in_ms) == (None, 1500)
    assert second == CancelTimer("1/chat:7", "b")


@pytest.mark.parametrize(
    "update",
    [
        {"update_id": 5, "pre_checkout_query": {"id": "1", "from": {"id": 7}}},
        {"broadcast": {"id": "news", "chat": {"id": 7}}},
    ],
)
def test_a_timer_of_an_express_update_or_a_broadcast_has_the_queue_of_its_chat(update: dict[str, Any]) -> None:
    made, writes = timers(update, HandlerPlan(queues=8, queue_group="updates.shop"))
    made.set(1, None, "a")
    [first] = writes.staged
    assert isinstance(first, SetTimer)
    assert re.fullmatch(r"updates\.shop\.[0-7]", first.queue)


def test_a_timer_needs_a_place() -> None:
    made, _ = timers({"update_id": 5, "newest_kind": {}})
    with pytest.raises(ValueError, match="an update of kind newest_kind has no chat, user or poll"):
        made.set(1, None, "a")


@pytest.mark.parametrize("plan", [HandlerPlan(), HandlerPlan(has_on_timer=False)])
def test_the_function_of_a_schedule_is_told_what_to_do_instead(plan: HandlerPlan) -> None:
    made, writes = timers({"schedule": {"name": "digest", "due_ms": 1000}}, plan)
    sentence = (
        "a schedule has no chat that a timer could belong to: write another Schedule for the later time, or start a"
    )
    for call in (lambda: made.set(1, None, "a"), lambda: made.cancel("a"), made.all):
        with pytest.raises(ValueError, match=sentence):
            call()
    assert writes.staged == []
    with pytest.raises(ValueError, match=sentence):
        context({"schedule": {"name": "digest", "due_ms": 1000}}).later(1)


def test_timers_of_a_message_about_a_supergroup_belong_to_it() -> None:
    group = {"chat": {"id": -5, "type": "group"}, "migrate_to_chat_id": -1005}
    supergroup = {"chat": {"id": -1005, "type": "supergroup"}, "migrate_from_chat_id": -5}
    for update in ({"update_id": 5, "message": group}, {"update_id": 6, "message": supergroup}):
        made, writes = timers(update)
        made.set(1, None, "a")
        removed, added = writes.staged
        assert removed == CancelTimer("1/chat:-5", "a")
        assert isinstance(added, SetTimer)
        assert (added.owner, b'"chat":{"id":-1005,"type":"supergroup"}' in bytes(added.stored)) == (
            "1/chat:-1005",
            True,
        )


def test_half_a_surrogate_pair_is_kept() -> None:
    made, writes = timers(UPDATE)
    made.set(1, "\ud83d", "a")
    [first] = writes.staged
    assert isinstance(first, SetTimer)
    assert isinstance(first.stored, bytes)
    assert "\\ud83d" in first.stored.decode()


@pytest.mark.parametrize(("message_id", "due_s"), [("7:timer:90500:3", 90.5), ("7:42", None), ("timer", None)])
def test_the_time_is_in_the_id(message_id: str, due_s: float | None) -> None:
    due = due_of(message_id)
    assert (due and due.timestamp()) == due_s


MIGRATION = Migration(-5, -1005)
OLD, NEW, RECORD = "7/chat:-5", "7/chat:-1005", "migrated:7/-5"


def stored(content: dict[str, Any], lanes: list[str]) -> StoredTimer:
    packed = pack_update("(timer, chat -5)", orjson.dumps({"timer": content}))
    return StoredTimer(OLD, "tea", 90, "7:timer:90:1", "updates.old", lanes, packed)


@pytest.mark.parametrize(
    ("lanes", "moved"),
    [([OLD], [NEW]), ([OLD, "7/user:9"], [NEW, "7/user:9"]), (["7/user:9"], ["7/user:9"]), ([""], [])],
)
def test_a_timer_has_the_lanes_of_the_new_chat(lanes: list[str], moved: list[str]) -> None:
    content = {"name": "tea", "data": {"chat": -5}, "chat": {"id": -5, "type": "group"}, "sender_chat": {"id": -5}}
    record, write = _moves(MIGRATION, "7", [stored(content, lanes)], HandlerPlan(queues=4))
    assert record == Set(RECORD, b"-1005")
    assert isinstance(write, MoveTimer)
    assert (write.owner, write.name, write.id, write.to, write.lanes) == (OLD, "tea", "7:timer:90:1", NEW, moved)
    assert (write.queue == "updates.old") == (OLD not in lanes)
    # And only what names its chat is changed, not its data
    found = content_of(stored(content, [])._replace(stored=bytes(write.stored)))  # type: ignore[arg-type]
    place = {"chat": {"id": -1005, "type": "supergroup"}, "sender_chat": {"id": -1005}}
    assert found == {"timer": {**content, **place}}


class Run:
    """A run of a timer, as a Delivery."""

    id = "7:timer:90500:3"

    def __init__(self, *, new: bytes | None = b"-1005", has_made_calls: bool = False) -> None:
        self.new = new
        self.calls = has_made_calls

    def read(self, names: list[str]) -> Read:
        assert names == [RECORD]
        return Read([OLD], [self.new])

    def has_made_calls(self) -> bool:
        return self.calls


def again(run: Any, chat: Any = -5) -> Any:
    return set_again({"timer": {"name": "tea", "chat": {"id": chat}}}, run, HandlerPlan())


def test_a_timer_that_has_fired_is_set_again_for_the_new_chat_at_the_same_time() -> None:
    write = again(Run())
    assert (write.owner, write.name, write.id, write.at_ms) == (NEW, Run.id, "7:timer:", 90_500)
    assert (write.lanes, write.queue) == ([NEW], "updates.0")


def test_a_timer_runs_where_it_is_if_its_chat_is_the_same_or_it_has_made_calls() -> None:
    assert again(Run(new=None)) is None
    assert again(Run(has_made_calls=True)) is None
    for chat in (5, -1_000_000_000_001, None, "x"):
        assert again(None, chat) is None
    assert set_again({"update_id": 1, "message": {"chat": {"id": -5}}}, Run(), HandlerPlan()) is None  # type: ignore[arg-type]
