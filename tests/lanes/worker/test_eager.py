"""Celery's eager mode: tasks with lanes run in their order, with a delivery, and without Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from celery import Celery, chain

import celery_lanes as lanes


class Shop:
    """An app in eager mode. Its tasks note in `seen` when they start and end."""

    def __init__(self, **conf: Any) -> None:
        self.seen: list[str] = []
        self._numbers = count()
        # Nothing listens there
        self.app = Celery("shop", broker="redis://127.0.0.1:1/0", set_as_current=False)
        lanes.install(self.app)
        self.app.conf.update(task_always_eager=True, **conf)

    def task(self, body: Callable[..., Any], lane: Any = "customer:{customer}") -> Any:
        def run(task: Any, customer: Any, name: str) -> Any:
            self.seen.append(f"{name} starts")
            result = body(task, customer, name)
            self.seen.append(f"{name} ends")
            return result

        return self.app.task(name=f"task-{next(self._numbers)}", bind=True, shared=False, lane=lane)(run)


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.app.close()


def nothing(task: Any, customer: Any, name: str) -> str:
    return name


def test_a_task_that_is_published_into_the_lane_that_runs_waits(shop: Shop) -> None:
    inner = shop.task(nothing)
    results: list[Any] = []

    def publish(task: Any, customer: int, name: str) -> None:
        results.extend(inner.delay(of, f"{name}{of}") for of in (customer, 7, customer))

    shop.task(publish).delay(9, "a")
    assert shop.seen == [
        *("a starts", "a7 starts", "a7 ends", "a ends"),
        *("a9 starts", "a9 ends", "a9 starts", "a9 ends"),
    ]
    assert [each.get() for each in results] == ["a9", "a7", "a9"]
    assert {each.state for each in results} == {"SUCCESS"}


@pytest.mark.parametrize(
    ("concurrency", "seen"),
    [
        (1, ["a starts", "a ends", "a0 starts", "a0 ends", "a1 starts", "a1 ends"]),
        (2, ["a starts", "a0 starts", "a0 ends", "a1 starts", "a1 ends", "a ends"]),
    ],
)
def test_tasks_of_a_limit_run_at_once_while_it_allows_them(shop: Shop, concurrency: int, seen: list[str]) -> None:
    limit = lanes.limit("customer:{customer}", concurrency=concurrency)
    inner = shop.task(nothing, lane=limit)

    def publish(task: Any, customer: int, name: str) -> None:
        for number in range(2):
            inner.delay(customer, f"{name}{number}")

    shop.task(publish, lane=[limit]).delay(9, "a")
    assert shop.seen == seen


def test_links_and_chains_follow(shop: Shop) -> None:
    task = shop.task(nothing)
    task.apply_async((9, "a"), link=task.si(9, "b"))
    assert shop.seen == ["a starts", "a ends", "b starts", "b ends"]
    assert chain(task.si(9, "c"), task.s("d")).apply_async().get() == "d"


def test_what_a_task_waits_for_runs(shop: Shop) -> None:
    """On a worker it would wait without end."""
    inner = shop.task(nothing)
    outer = shop.task(lambda task, customer, name: inner.delay(customer, "b").get(disable_sync_subtasks=False))
    assert outer.delay(9, "a").get() == "b"
    assert shop.seen == ["a starts", "b starts", "b ends", "a ends"]


def test_what_a_task_waits_for_runs_after_those_before_it(shop: Shop) -> None:
    inner = shop.task(nothing)

    def wait(task: Any, customer: int, name: str) -> None:
        later = [inner.delay(customer, each) for each in "bcd"]
        assert not any(each.ready() for each in later)
        assert later[1].get(disable_sync_subtasks=False) == "c"
        assert [each.ready() for each in later] == [True, True, False]

    shop.task(wait).delay(9, "a").get()
    assert [each for each in shop.seen if each.endswith("starts")] == [f"{name} starts" for name in "abcd"]


def test_a_task_may_publish_any_number_into_its_lane(shop: Shop) -> None:
    inner, many = shop.task(nothing), range(1500)

    def publish(task: Any, customer: int, name: str) -> None:
        for number in many:
            inner.delay(customer, f"b{number}")

    shop.task(publish).delay(9, "a").get()
    assert shop.seen[2:] == [f"b{number} {what}" for number in many for what in ("starts", "ends")]


def test_a_failed_task_keeps_no_task_waiting_for_ever() -> None:
    shop = Shop(task_eager_propagates=True)

    def fail(task: Any, customer: int, name: str) -> None:
        raise OSError("as told")

    inner, failing = shop.task(nothing), shop.task(fail)

    def publish(task: Any, customer: int, name: str) -> None:
        failing.delay(customer, "b")
        inner.delay(customer, "c")

    with pytest.raises(OSError, match="as told"):
        shop.task(publish).delay(9, "a")
    inner.delay(9, "d")
    assert shop.seen[-4:] == ["c starts", "c ends", "d starts", "d ends"]
    shop.app.close()


def test_a_failed_task_does_not_keep_its_lane() -> None:
    shop = Shop(task_eager_propagates=True)
    inner = shop.task(nothing)

    def fail(task: Any, customer: int, name: str) -> None:
        inner.delay(customer, "b")
        raise OSError("as told")

    failing = shop.task(fail)
    for _ in range(2):
        with pytest.raises(OSError, match="as told"):
            failing.delay(9, "a")
    assert shop.seen == ["a starts", "b starts", "b ends"] * 2
    shop.app.close()


def test_a_task_has_a_delivery_whose_journal_lasts_over_its_retries(shop: Shop) -> None:
    found: list[Any] = []

    def pay(task: Any, customer: int, name: str) -> str:
        delivery = task.delivery
        place = delivery.journal.position()
        begun, _ = delivery.journal.begin(place, "pay:9")
        delivery.journal.end(place, "pay:9", lanes.Kind.DONE, b"receipt")
        found.append((delivery.id, delivery.attempt, begun))
        delivery.check()
        if delivery.failed == 0:
            raise task.retry(countdown=60)
        return str(delivery.commit([lanes.Set("paid", "9")]).name)

    published = shop.task(pay).delay(9, "a")
    assert published.get() == "DONE"
    assert found == [
        (published.id, 1, lanes.Begun(lanes.Noted.BEGUN)),
        (published.id, 2, lanes.Begun(lanes.Noted.DONE, b"receipt")),
    ]


def test_the_fence_grows_and_needs_a_lane(shop: Shop) -> None:
    fenced = shop.task(lambda task, customer, name: task.fence)
    first = fenced.delay(9, "a").get()
    assert type(first) is int
    assert first < fenced.delay(9, "b").get()
    plain = shop.task(lambda task, customer, name: task.fence, lane=None)
    with pytest.raises(lanes.LanesError, match="task-1 has no fence here: only a run that came through a lane has one"):
        plain.delay(9, "a").get()


def test_what_needs_redis_says_so(shop: Shop) -> None:
    parking = shop.task(lambda task, customer, name: task.delivery.park(delay_s=1))
    with pytest.raises(lanes.LanesError, match="test this with a worker"):
        parking.delay(9, "a").get()


def test_a_key_that_is_missing_is_refused(shop: Shop) -> None:
    with pytest.raises(lanes.PublishRefused, match="needs it"):
        shop.task(nothing).delay(None, "a")


@pytest.mark.parametrize("headers", [None, lanes.headers(["all"])])
def test_only_a_task_in_a_lane_has_a_delivery(shop: Shop, headers: dict[str, Any] | None) -> None:
    plain = shop.task(lambda task, customer, name: task.delivery is not None, lane=None)
    assert plain.apply_async((9, "a"), headers=headers).get() is (headers is not None)
