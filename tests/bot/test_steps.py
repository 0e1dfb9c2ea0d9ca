"""ctx.step: a step whose outcome is recorded is not done again, and a run without a lease does none."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

from celery_lanes import Group, Interrupted, Journal, Lanes, LeaseLost, install
from celery_lanes.protocol import NewMessage
from chatlanes import StepError
from chatlanes.bot.addressing import NoChatError
from chatlanes.bot.context import Context
from chatlanes.bot.coroutines import PlainCoroutine, awaited
from chatlanes.bot.interrupts import Interrupts
from chatlanes.bot.stored import Stored
from chatlanes.telegram.client import BotApi
from chatlanes.telegram.flood import Parking
from tests.bot.test_calls import ID, CallsOfRun, begin_run
from tests.support.http_server import HttpServer

UPDATE = {"update_id": 1, "message": {"message_id": 1, "chat": {"id": 7, "type": "private"}, "text": "hi"}}


class Run(CallsOfRun):
    """One run of the update, with its context."""

    def __init__(self, lanes: Lanes, begun: CallsOfRun, update_id: int) -> None:
        super().__init__(lanes, begun.delivery, begun.calls)
        self.ctx = Context(
            {**UPDATE, "update_id": update_id},
            begun.calls,
            stored=Stored(begun.delivery, Parking()),
            fence=int(begun.delivery.fence),
            interrupts=Interrupts(begun.delivery),
        )


@pytest.fixture
def lanes(redis_url: str) -> Iterator[Lanes]:
    """Lanes of a new app, with one update."""
    with Celery("test", broker=redis_url, set_as_current=False) as app:
        lanes = install(app)
        lanes.store.append([NewMessage(ID, "q", "{}", ["1/chat:7"])])
        yield lanes


@pytest.fixture
def run(lanes: Lanes, api: BotApi) -> Callable[..., Run]:
    """Returns a function that starts the next run of the update."""

    def begin(uncertain: str = "repeat", update_id: int = 1, **more: Any) -> Run:
        return Run(lanes, begin_run(lanes, api, uncertain, **more), update_id)

    return begin


class Shop:
    """Records the payments."""

    def __init__(self) -> None:
        self.paid: list[Any] = []
        self.raises: BaseException | None = None

    def charge(self, order: Any) -> Any:
        self.paid.append(order)
        if self.raises is not None:
            raise self.raises
        return {"receipt": len(self.paid), "lines": (order,)}

    async def charge_soon(self, order: Any) -> Any:
        await asyncio.sleep(0)
        return self.charge(order)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_step_is_done_once(run: Callable[..., Run], shop: Shop) -> None:
    # Given a run that did two steps of one name and one of another, and failed
    first = run()
    given = [first.ctx.step("charge", shop.charge, "tea"), first.ctx.step("charge", shop.charge, "cake")]
    nothing = first.ctx.step("refund", lambda: None)
    first.fails()
    # When the update runs again, with other calls between its steps
    second = run()
    second.call("a new call")
    # Then it gets the same results, also where JSON has no such type, and pays only for the new step
    assert second.ctx.step("refund", shop.charge, "never") is nothing is None
    assert [second.ctx.step("charge", shop.charge, each) for each in ("tea", "cake")] == given
    assert given == [{"receipt": 1, "lines": ["tea"]}, {"receipt": 2, "lines": ["cake"]}]
    assert second.ctx.step("charge", shop.charge, "wine") == {"receipt": 3, "lines": ["wine"]}
    assert shop.paid == ["tea", "cake", "wine"]


def test_a_step_that_raises_is_done_again(run: Callable[..., Run], shop: Shop, lanes: Lanes) -> None:
    shop.raises = ConnectionError("away")
    first = run()
    for _ in range(2):  # each is a step of its own
        with pytest.raises(ConnectionError, match="away"):
            first.ctx.step("charge", shop.charge, "tea", uncertain="skip")
    first.fails()
    shop.raises = None
    assert run().ctx.step("charge", shop.charge, "tea", uncertain="skip") == {"receipt": 3, "lines": ["tea"]}


class Killed(BaseException):
    """Stands for a process that dies: what follows in the function is not executed."""


@pytest.mark.parametrize(
    "end", [Killed(), SoftTimeLimitExceeded(), LeaseLost("a call in the function was refused")], ids=type
)
@pytest.mark.parametrize(
    ("setting", "override", "paid"), [("repeat", None, 2), ("skip", None, 1), ("skip", "repeat", 2)]
)
def test_a_step_in_flight_is_uncertain(
    run: Callable[..., Run],
    shop: Shop,
    caplog: pytest.LogCaptureFixture,
    end: BaseException,
    setting: str,
    override: Any,
    paid: int,
) -> None:
    # Given a run that ended in the function of a step
    first, shop.raises = run(setting), end
    with pytest.raises(type(end)):
        first.ctx.step("charge", shop.charge, "tea")
    first.dies()
    # Then the next run repeats or skips it
    shop.raises = None
    found = run(setting).ctx.step("charge", shop.charge, "tea", uncertain=override)
    assert (len(shop.paid), found and found["receipt"]) == (paid, 2 if paid == 2 else None)
    assert "call step/charge/1, step, was begun by a run that left no outcome" in caplog.text


def test_key_and_fence_are_passed_on(run: Callable[..., Run]) -> None:
    def charge(order: str, key: str, *, fence: int) -> list[Any]:
        return [order, key, fence]

    def hidden(key: Any, /, **more: Any) -> list[Any]:
        return [key, more]

    first = run()
    assert first.ctx.step("charge", charge, "tea") == ["tea", f"{ID}/charge/1", first.ctx.fence]
    # What the caller passes, and what has another meaning, is left alone
    assert first.ctx.step("charge", charge, "tea", "mine", fence=0) == ["tea", "mine", 0]
    assert first.ctx.step("other", hidden, 5, fence=0) == [5, {"fence": 0}]
    assert first.ctx.step("partial", functools.partial(charge, "tea"))[1] == f"{ID}/partial/1"
    first.dies()
    # A later run of the same update has the same keys and a greater fence
    second = run()
    replayed, passed = second.ctx.step("charge", charge, "tea"), second.ctx.step("charge", charge, "tea")
    assert (replayed[1], passed[1]) == (f"{ID}/charge/1", "mine")
    third = second.ctx.step("charge", charge, "tea")
    assert third[1] == f"{ID}/charge/3"
    assert third[2] > replayed[2]
    # A hook's steps are its own
    hook = Context(UPDATE, second.calls.in_series("error1/"), stored=second.ctx.stored)
    assert hook.step("charge", charge, "tea") == ["tea", f"{ID}/error1/charge/1", None]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("x" * (1 << 20), "the result of step charge has 1,048,578 bytes as JSON, and at most 1,048,576 are allowed"),
        ({"at": [object()]}, r"result of step charge\['at'\]\[0\] is a object"),
        ({1: "one"}, "result of step charge has the key 1"),
    ],
    ids=["large", "type", "key"],
)
def test_a_result_that_cannot_be_stored_is_not_paid_again(run: Callable[..., Run], result: Any, why: str) -> None:
    paid: list[int] = []

    def charge() -> Any:
        paid.append(1)
        return result

    first = run()
    with pytest.raises(StepError, match=why):
        first.ctx.step("charge", charge)
    first.fails()
    with pytest.raises(StepError, match="step charge was done by an earlier run, which could not store its result"):
        run().ctx.step("charge", charge)
    assert paid == [1]


def test_the_largest_result_is_replayed(run: Callable[..., Run]) -> None:
    largest = "x" * ((1 << 20) - 2)
    first = run()
    assert first.ctx.step("read", lambda: largest) == largest
    first.fails()
    assert run().ctx.step("read", lambda: "another") == largest


def test_a_run_without_a_lease_does_no_step(run: Callable[..., Run], shop: Shop) -> None:
    first = run()
    first.dies()
    with pytest.raises(LeaseLost):
        first.ctx.step("charge", shop.charge, "tea")
    assert shop.paid == []
    # One that loses it during the step records nothing
    second = run()

    def charge_and_die() -> str:
        second.dies()
        return "from the second run"

    second.ctx.step("charge", charge_and_die)
    assert run().ctx.step("charge", lambda: "from the third run") == "from the third run"


TALK = Group("talk", quiet_ms=0, max_wait_ms=0, most=9, interrupts=True)


def test_the_steps_of_an_interrupted_run_are_known_to_the_next(
    run: Callable[..., Run], lanes: Lanes, shop: Shop
) -> None:
    # Given a run that did one step, and is interrupted in another
    talk = NewMessage("1:2", "p", "{}", ["1/chat:8"], group=TALK)
    lanes.store.append([talk])
    first = run(queue="p", is_interruptible=True, update_id=2)
    first.ctx.step("charge", shop.charge, "tea")

    def interrupt(key: str) -> str:
        lanes.store.append([talk._replace(id="1:3")])
        return key

    assert first.ctx.step("search", interrupt) == "1:2/search/1"
    with pytest.raises(Interrupted):
        first.ctx.step("charge", shop.charge, "cake")
    lanes.store.look()  # the outcome is not awaited: any answer shows that it has arrived
    # Then the next run sees both, and its own steps are new ones with other keys
    second = run(queue="p", is_interruptible=True, update_id=3)
    found = [(call.method, call.result) for call in second.ctx.previous_calls]
    assert found == [("step:charge", {"receipt": 1, "lines": ["tea"]}), ("step:search", "1:2/search/1")]
    assert second.ctx.step("search", lambda key: key) == "1:3/search/1"
    assert second.ctx.step("charge", shop.charge, "tea")["receipt"] == 2


def test_nobody_in_a_chat_of_a_guest_is_asked(run: Callable[..., Run], web: HttpServer) -> None:
    begun = run()
    guest = {"update_id": 1, "guest_message": {**UPDATE["message"], "guest_query_id": "g"}}  # type: ignore[dict-item]
    ctx = Context(guest, begun.calls, stored=begun.ctx.stored)
    with pytest.raises(NoChatError, match="nobody in a guest's chat can answer"):
        ctx.ask("Sure?")
    assert web.asked == []


def test_the_function_of_a_step_may_not_take_places_in_the_journal(
    run: Callable[..., Run], web: HttpServer, shop: Shop
) -> None:
    ctx = run().ctx
    for forbidden in (lambda: ctx.reply("hi"), lambda: ctx.step("inner", shop.charge, "tea")):
        with pytest.raises(StepError, match="the function of step outer called the Bot API or another step"):
            ctx.step("outer", forbidden)
    assert (web.asked, shop.paid) == ([], [])
    # Methods that only read have no place
    ctx.step("outer", lambda: ctx.call("getMe"))
    # And after the step everything may be called
    ctx.reply("hi")
    assert len(web.asked) == 2


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "x" * 65])
def test_a_name_that_cannot_be_a_part_of_a_position_is_refused(run: Callable[..., Run], name: str) -> None:
    with pytest.raises(StepError, match="is not a name of a step: use 1 to 64"):
        run().ctx.step(name, lambda: None)


def test_a_wrong_use_is_refused_before_the_function_is_called(run: Callable[..., Run], shop: Shop) -> None:
    ctx = run().ctx
    with pytest.raises(StepError, match=r"await ctx\.step in an async def handler"):
        ctx.step("charge", shop.charge_soon, "tea")
    with pytest.raises(TypeError, match="unexpected keyword argument 'price'"):
        ctx.step("charge", shop.charge, "tea", price=5)
    with pytest.raises(ValueError, match="uncertain='maybe'"):
        ctx.step("charge", shop.charge, "tea", uncertain="maybe")  # type: ignore[arg-type]
    assert shop.paid == []


def test_without_a_lane_a_step_calls_its_function(shop: Shop) -> None:
    ctx = Context(UPDATE, api=None)  # type: ignore[arg-type]
    assert ctx.step("charge", shop.charge, "tea") == {"receipt": 1, "lines": ["tea"]}
    keys = [ctx.step("charge", lambda key, fence: [key, fence]) for _ in range(2)]
    assert keys == [["1/charge/2", None], ["1/charge/3", None]]
    assert asyncio.run(awaited(lambda ctx: ctx.step("charge", shop.charge_soon, "cake"), ctx))["receipt"] == 2


# -- in coroutines


def test_coroutines_await_their_steps(run: Callable[..., Run], shop: Shop) -> None:
    async def handle(ctx: Context) -> list[Any]:
        # The places are those of the source, whichever ends first
        both = await asyncio.gather(
            ctx.step("charge", shop.charge_soon, "tea"), ctx.step("charge", shop.charge, "cake")
        )
        return [each["lines"] for each in both]

    for _ in range(2):
        begun = run()
        assert PlainCoroutine(handle, is_limited=False)(begun.ctx) == [["tea"], ["cake"]]
        begun.fails()
    assert sorted(shop.paid) == ["cake", "tea"]


def test_a_coroutine_function_that_raises_is_called_again(run: Callable[..., Run], shop: Shop) -> None:
    async def handle(ctx: Context) -> Any:
        return await ctx.step("charge", shop.charge_soon, "tea", uncertain="skip")

    shop.raises, begun = ConnectionError("away"), run()
    with pytest.raises(ConnectionError):
        PlainCoroutine(handle, is_limited=False)(begun.ctx)
    begun.fails()
    shop.raises = None
    assert PlainCoroutine(handle, is_limited=False)(run().ctx)["receipt"] == 2


def test_a_step_that_is_not_awaited_fails_the_handler(run: Callable[..., Run], shop: Shop) -> None:
    async def handle(ctx: Context) -> None:
        ctx.step("charge", shop.charge, "tea")

    with pytest.raises(TypeError, match=r"^ctx\.step\('charge', …\) was not awaited, so it did not happen"):
        asyncio.run(awaited(handle, run().ctx))
    assert shop.paid == []


@pytest.mark.parametrize("wrong", [(Shop.charge, "order"), ("charge", "order")])
def test_a_step_without_a_name_or_a_function_says_so(run: Callable[..., Run], wrong: Any) -> None:
    with pytest.raises(StepError, match=r"use a name and a function, ctx\.step\('charge', charge, order\)$"):
        run().ctx.step(*wrong)


async def cancelled_in(step: Any, has_begun: asyncio.Event, release: Callable[[], None]) -> None:
    task = asyncio.ensure_future(step)
    await has_begun.wait()
    task.cancel()
    await asyncio.sleep(0.01)
    release()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_coroutine_function_is_uncertain(run: Callable[..., Run]) -> None:
    async def main(ctx: Context) -> None:
        has_begun = asyncio.Event()

        async def charge() -> None:
            has_begun.set()
            await asyncio.sleep(60)

        await cancelled_in(ctx.step("charge", charge), has_begun, lambda: None)

    begun = run("skip")
    asyncio.run(main(begun.ctx))
    begun.dies()
    assert run("skip").ctx.step("charge", lambda: "again") is None


def test_a_coroutine_function_cancelled_before_its_call_is_not_done(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(ctx: Context, journal: Journal) -> None:
        has_begun, gate, loop = asyncio.Event(), Event(), asyncio.get_running_loop()
        begin = journal.begin

        def begin_slowly(*arguments: Any) -> Any:
            begun = begin(*arguments)
            loop.call_soon_threadsafe(has_begun.set)
            assert gate.wait(60)
            return begun

        monkeypatch.setattr(journal, "begin", begin_slowly)

        async def charge() -> None:
            raise AssertionError("it was called")

        await cancelled_in(ctx.step("charge", charge), has_begun, gate.set)

    begun = run("skip")
    asyncio.run(main(begun.ctx, begun.delivery.journal))
    begun.dies()
    assert run("skip").ctx.step("charge", lambda: "paid") == "paid"


def test_a_plain_function_ends_although_its_coroutine_is_cancelled(run: Callable[..., Run]) -> None:
    async def main(ctx: Context) -> None:
        has_begun, gate, loop = asyncio.Event(), Event(), asyncio.get_running_loop()

        def charge() -> str:
            loop.call_soon_threadsafe(has_begun.set)
            assert gate.wait(60)
            return "paid"

        await cancelled_in(ctx.step("charge", charge), has_begun, gate.set)

    begun = run()
    asyncio.run(main(begun.ctx))
    begun.fails()
    # Its outcome is recorded: the next run does not pay again
    assert run().ctx.step("charge", lambda: "again") == "paid"


def test_a_step_after_the_end_of_its_handler_is_refused(run: Callable[..., Run], shop: Shop) -> None:
    late: list[Context] = []

    async def handle(ctx: Context) -> None:
        late.append(ctx)

    async def main() -> None:
        await awaited(handle, run().ctx)
        with pytest.raises(LeaseLost, match="the handler has ended; step charge was not called"):
            await late[0].step("charge", shop.charge, "tea")

    asyncio.run(main())
    assert shop.paid == []
