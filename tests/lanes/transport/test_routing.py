"""The `lane` of a task or of its route: each message has the keys that it makes of the arguments, or is refused."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, Task, _state, chord, group, shared_task
from kombu import Exchange, Queue

import celery_lanes as lanes
from celery_lanes.protocol import keys
from celery_lanes.worker.task import put_in_lanes

LANE = "customer:{customer}"
Build = Callable[..., Celery]


class Plan(enum.StrEnum):
    FREE = "free"


def plain(customer: Any = None) -> None: ...


def by_order_only(order: Any = None) -> None: ...


class Audited(Task):
    lane = LANE


def by_order(order: Any) -> Any:
    return None if order is None else [f"customer:{order['customer']}", "{all}"]


@pytest.fixture
def build(redis_url: str) -> Iterator[Build]:
    made: list[Celery] = []

    def make(**conf: Any) -> Celery:
        app = Celery("shop", broker=redis_url, set_as_current=False)
        made.append(app)
        lanes.install(app)
        app.conf.update(**conf)
        return app

    yield make
    for app in made:
        if app.conf.result_backend:
            app.backend.result_consumer.stop()
            app.backend.result_consumer._pubsub = None
            app.backend.client.close()
        app.lanes.store.client.close()


@pytest.fixture
def app(redis_url: str, build: Build) -> Celery:
    made = build(result_backend=redis_url)

    def task(function: Callable[..., Any], **options: Any) -> None:
        made.task(name=function.__name__, shared=False, **options)(function)

    def charge(customer: Any, total: int = 0, *, region: str = "eu") -> None: ...
    def bound(self: Any, customer: Any) -> None: ...
    def items(order: Any, *rest: Any, **more: Any) -> None: ...

    task(charge, lane=LANE)
    for name, lane in {
        "several": [LANE, "region:{region}", "all"],
        "positions": "customer:{0}",
        "converted": "customer:{customer!s}",
        "text": "everything",
        "empty": [],
        "wrong": "customer:{customer.name}",
        "unknown": "account:{account}",
    }.items():
        made.task(name=name, shared=False, lane=lane)(charge)
    task(bound, bind=True, lane=LANE)
    made.task(name="untyped", shared=False, typing=False, lane=LANE)(charge)
    made.task(name="retried", shared=False, autoretry_for=(OSError,), lane=LANE)(charge)
    made.task(name="inherited", shared=False, base=Audited)(plain)
    made.task(name="function", shared=False, lane=by_order)(by_order_only)
    task(items, lane=["item:{order[items][0]}", "rest:{1}", "more:{more_of}"])
    task(plain)
    return made


def keys_of(app: Celery, message_id: str) -> list[str]:
    stored = app.lanes.store.client.hget(keys.message(message_id), "lanes")
    return [key for key in (stored or b"").decode().split("\n") if key]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "expected"),
    [
        ("charge", (9,), {}, ["customer:9"]),
        ("charge", (), {"customer": "nine", "total": 2}, ["customer:nine"]),
        ("charge", (Plan.FREE,), {}, ["customer:free"]),
        ("several", (9, 20), {}, ["customer:9", "region:eu", "all"]),
        ("several", (9,), {"region": "us"}, ["customer:9", "region:us", "all"]),
        ("positions", (9,), {}, ["customer:9"]),
        ("positions", (), {"customer": 9}, ["customer:9"]),
        ("converted", (1.5,), {}, ["customer:1.5"]),
        ("text", (9,), {}, ["everything"]),
        ("empty", (9,), {}, []),
        ("bound", (9,), {}, ["customer:9"]),
        ("untyped", (9,), {}, ["customer:9"]),
        ("retried", (9,), {}, ["customer:9"]),
        ("inherited", (9,), {}, ["customer:9"]),
        ("function", ({"customer": 9},), {}, ["customer:9", "{all}"]),
        ("items", ({"items": [7]}, "b"), {"more_of": 3}, ["item:7", "rest:b", "more:3"]),
    ],
)
def test_a_lane_makes_keys_of_the_arguments(
    app: Celery, name: str, args: Any, kwargs: dict[str, Any], expected: list[str]
) -> None:
    published = app.tasks[name].delay(*args, **kwargs)
    assert keys_of(app, published.id) == expected
    assert app.lanes.store.client.hget(keys.message(published.id), "queue") == b"celery.lanes"


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "sentence"),
    [
        (
            "unknown",
            (9,),
            {},
            "the lane 'account:{account}' of unknown needs account, which this message",
        ),
        ("untyped", (), {}, "needs customer, which this message does not have: pass it as an argument"),
        (
            "untyped",
            (1, 2, 3),
            {},
            "untyped has a lane, and these are not its arguments: too many",
        ),
        ("charge", (None,), {}, "customer of charge is None, and its lane 'customer:{customer}' needs it"),
        (
            "charge",
            (1.5,),
            {},
            "customer of charge is a float, and its lane 'customer:{customer}' is made of",
        ),
        ("charge", (True,), {}, "customer of charge is a bool"),
        ("charge", ([9],), {}, "customer of charge is a list"),
        (
            "wrong",
            (9,),
            {},
            "'customer:{customer.name}' is not a lane of wrong: use a text such as",
        ),
        ("function", (), {"order": 5}, "the lane function of function does not fit the arguments"),
        ("items", ({},), {}, "needs order[items][0], which this message does not have"),
        ("charge", ("\n",), {}, "is not a lane key"),
    ],
)
def test_a_message_without_its_key_is_refused(
    app: Celery, name: str, args: Any, kwargs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(lanes.PublishRefused, match=re.escape(sentence)):
        app.tasks[name].delay(*args, **kwargs)
    assert app.lanes.store.client.keys("*") == []


def test_keys_of_the_call_win(app: Celery) -> None:
    charge = app.tasks["charge"]
    assert keys_of(app, charge.apply_async((9,), headers=lanes.headers(["all"])).id) == ["all"]
    assert keys_of(app, charge.apply_async((None,), headers={"mine": 1, **lanes.headers([])}).id) == []
    assert keys_of(app, charge.apply_async((9,), headers={"mine": 1}).id) == ["customer:9"]


@pytest.mark.parametrize("given", ["customer:9", {"customer:9": 1}, [5], 5, ""])
def test_keys_of_the_call_that_are_no_list_of_texts_are_refused(app: Celery, given: Any) -> None:
    for publish in (app.tasks["charge"].apply_async, app.tasks["charge"].apply):
        with pytest.raises(lanes.PublishRefused, match="is not a l"):
            publish((9,), headers={"lane_keys": given})
    assert app.lanes.store.client.keys("*") == []


def test_headers_without_keys_add_to_the_lane(app: Celery) -> None:
    once = [app.tasks["charge"].apply_async((9,), headers=lanes.headers(once=("order", 17))) for _ in range(2)]
    assert once[0].id == once[1].id
    assert keys_of(app, once[0].id) == ["customer:9"]
    assert app.lanes.store.pending() == 1
    for name in ("plain", "function"):
        with pytest.raises(lanes.PublishRefused, match=f"{name} has no lane for this message, and None is not"):
            app.tasks[name].apply_async(headers=lanes.headers(once=("order", 17)))


def test_a_lane_at_the_call_is_refused(app: Celery) -> None:
    with pytest.raises(lanes.PublishRefused, match="lane= is an option of the task plain and of its route"):
        app.tasks["plain"].apply_async((9,), lane="customer:9")


def test_a_function_that_returns_none_gives_no_lane(app: Celery) -> None:
    published = app.tasks["function"].delay(None)
    assert keys_of(app, published.id) == []
    assert app.lanes.store.client.llen("celery") == 1


def test_a_task_without_a_lane_stays_ordinary(app: Celery) -> None:
    app.tasks["plain"].delay(9)
    app.tasks["plain"].apply_async((9,), headers={"once": ["mine", 1]})
    assert app.lanes.store.client.llen("celery") == 2
    assert app.lanes.store.client.keys("lanes:*") == []


def test_map_and_chunks_are_refused(app: Celery) -> None:
    """They are one message with many arguments, which would run them without their lanes."""

    def any_arguments(*args: Any, **kwargs: Any) -> None: ...

    anything = app.task(name="anything", shared=False, lane="all")(any_arguments)
    for task in (app.tasks["charge"], anything):
        for several in (task.map([9, 7]), task.starmap([(9,), (7,)]), task.chunks([(9,), (7,)], 2).group()):
            with pytest.raises(lanes.PublishRefused, match=f"{task.name} has a lane, and map, starmap and chunks are"):
                several.apply_async()
    assert app.lanes.store.client.keys("*") == []


def test_map_and_chunks_have_the_keys_that_a_route_gives_them(build: Build) -> None:
    app = build(task_routes=[lambda name, args, kwargs, options, task=None: {"lane": [name]}])
    add = app.task(name="plain", shared=False)(plain)
    for several in (add.map([9, 7]), add.starmap([(9,), (7,)])):
        assert keys_of(app, several.apply_async().id) == ["plain"]


def test_a_canvas_needs_no_keys(app: Celery) -> None:
    charge = app.tasks["charge"]
    several = group(charge.s(n) for n in range(3)).apply_async()
    assert [keys_of(app, each.id) for each in several] == [["customer:0"], ["customer:1"], ["customer:2"]]
    chorded = chord([charge.s(7), charge.s(8)], app.tasks["several"].si(1)).apply_async()
    assert [keys_of(app, each.id) for each in chorded.parent] == [["customer:7"], ["customer:8"]]
    first = (charge.si(5) | charge.si(6)).apply_async().parent
    assert keys_of(app, first.id) == ["customer:5"]


def test_countdowns_join_the_lane_of_their_arguments(app: Celery) -> None:
    published = app.tasks["charge"].apply_async((9,), countdown=3600)
    [timer] = app.lanes.store.timers(f"task {published.id}")
    assert timer.lanes == ["customer:9"]


def test_shared_tasks_and_tasks_made_before_install(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_state, "_on_app_finalizers", set())  # other apps do not get the shared task
    app = Celery("shop", broker=redis_url, set_as_current=False)

    @shared_task(name="shared", lane=LANE)
    def charge(customer: int) -> None: ...

    app.task(name="early", shared=False, lane=LANE)(plain)
    lanes.install(app)
    put_in_lanes(app.tasks.values())
    for name in ("shared", "early"):
        assert keys_of(app, app.tasks[name].delay(9).id) == ["customer:9"]
    app.lanes.store.client.close()
    app.close()


# -- routes of a program that does not have the task

ROUTES: dict[str, Any] = {
    "by name": {"shop.*": {"lane": LANE}},
    "by position": {"shop.charge": {"lane": "customer:{0}"}},
    "several": ([("shop.*", {"lane": [LANE, "all"]})],),
}


@pytest.mark.parametrize(
    ("routes", "args", "kwargs", "expected"),
    [
        ("by name", (), {"customer": 9}, ["customer:9"]),
        ("by position", (9,), {}, ["customer:9"]),
        ("several", (), {"customer": 9}, ["customer:9", "all"]),
    ],
)
def test_a_route_orders_what_another_program_sends(
    build: Build, routes: str, args: Any, kwargs: Any, expected: list[str]
) -> None:
    app = build(task_routes=ROUTES[routes])
    published = app.send_task("shop.charge", args, kwargs)
    assert keys_of(app, published.id) == expected


@pytest.mark.parametrize(("routes", "args"), [("by name", (9,)), ("by position", ())])
def test_a_program_that_does_not_know_the_task_is_told_how_to_pass_the_key(
    build: Build, routes: str, args: Any
) -> None:
    app = build(task_routes=ROUTES[routes])
    with pytest.raises(lanes.PublishRefused, match="does not know the task and finds only arguments passed"):
        app.send_task("shop.charge", args)


def test_a_function_of_task_routes_returns_keys(build: Build) -> None:
    def route(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
        return {"lane": f"customer:{kwargs['customer']}"} if name == "shop.charge" else None

    app = build(task_routes=(route,))
    assert keys_of(app, app.send_task("shop.charge", kwargs={"customer": "{0}"}).id) == ["customer:{0}"]
    app.send_task("shop.mail")
    assert app.lanes.store.client.llen("celery") == 1


def test_the_lane_of_a_task_wins_over_that_of_its_route(build: Build) -> None:
    app = build(task_routes={"*": {"lane": "routed", "queue": "orders.lanes"}}, task_queues=[lane_queue()])
    for name, lane in (("own", LANE), ("routed", None)):
        app.task(name=name, shared=False, lane=lane)(plain)
    assert keys_of(app, app.tasks["own"].delay(9).id) == ["customer:9"]
    assert keys_of(app, app.tasks["routed"].delay(9).id) == ["routed"]


# -- the queue


def lane_queue(name: str = "orders.lanes") -> Queue:
    return Queue(name, Exchange(""), name, queue_arguments=lanes.QUEUE_ARGUMENTS)


def ordinary(name: str) -> Queue:
    return Queue(name, Exchange(""), name)


@pytest.mark.parametrize(
    ("conf", "options", "expected"),
    [
        ({}, {}, "celery.lanes"),
        ({"task_default_queue": "shop"}, {}, "shop.lanes"),
        ({"task_queues": [ordinary("celery")]}, {}, "celery.lanes"),
        ({"task_queues": [ordinary("celery"), lane_queue("a"), lane_queue("b")]}, {}, "a"),
        ({"task_queues": [lane_queue("a"), lane_queue("b")], "task_default_queue": "b"}, {}, "b"),
        ({"task_queues": [lane_queue("a"), lane_queue("b")]}, {"queue": "b"}, "b"),
        ({"task_queues": [lane_queue("a"), lane_queue("b")], "task_routes": {"charge": {"queue": "b"}}}, {}, "b"),
        ({"task_queues": [lane_queue("a")], "task_routes": {"charge": {"priority": 3}}}, {}, "a"),
        ({"task_create_missing_queues": False}, {}, "celery.lanes"),
    ],
)
def test_the_queue_of_a_task_with_a_lane(
    build: Build, conf: dict[str, Any], options: dict[str, Any], expected: str
) -> None:
    app = build(**conf)
    charge = app.task(name="charge", shared=False, lane=LANE)(plain)
    published = charge.apply_async((9,), **options)
    assert app.lanes.store.client.hget(keys.message(published.id), "queue") == expected.encode()


def test_the_queue_for_lanes_may_be_named(app: Celery) -> None:
    """Also in a program that has published nothing yet."""
    named = {"queue": "celery.lanes"}
    assert keys_of(app, app.tasks["charge"].apply_async((9,), **named).id) == ["customer:9"]
    ordered = app.tasks["plain"].apply_async(headers=lanes.headers(["customer:9"]), **named)
    assert keys_of(app, ordered.id) == ["customer:9"]


def test_beside_declared_lane_queues_it_is_an_ordinary_name(build: Build) -> None:
    """No worker would read it."""
    app = build(task_queues=[lane_queue("a")], task_default_queue="bank")
    charge = app.task(name="charge", shared=False, lane=LANE)(plain)
    with pytest.raises(lanes.PublishRefused, match="is an ordinary queue"):
        charge.apply_async((9,), queue="bank.lanes")


@pytest.mark.parametrize("named", ["celery", "mails"])
def test_an_ordinary_queue_that_is_named_refuses_a_task_with_a_lane(app: Celery, named: str) -> None:
    with pytest.raises(lanes.PublishRefused, match="is an ordinary queue, and this message has lane keys"):
        app.tasks["charge"].apply_async((9,), queue=named)


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (None, None, ["celery", "celery.lanes"]),
        (["celery"], None, ["celery"]),
        (["celery.lanes"], None, ["celery.lanes"]),
        (None, ["celery.lanes"], ["celery"]),
    ],
)
def test_a_worker_reads_the_queue_for_lanes(app: Celery, include: Any, exclude: Any, expected: list[str]) -> None:
    app.amqp.queues.select(include)
    app.amqp.queues.deselect(exclude)
    assert [*app.amqp.queues.consume_from] == expected
    for queue in app.amqp.queues.consume_from.values():
        assert bool((queue.queue_arguments or {}).get("x-lanes")) == (queue.name == "celery.lanes")


def test_without_lanes_a_worker_reads_what_it_read(build: Build) -> None:
    app = build(task_routes={"mail": {"queue": "mails"}, "old": "olds"})
    app.amqp.queues.select(None)
    assert [*app.amqp.queues.consume_from] == ["celery"]


LIMITED = lanes.limit(LANE, rate="10/m")


@pytest.mark.parametrize(
    ("lane", "stored"),
    [
        (LIMITED, "customer:9\n\x1f6000"),
        (["all", LIMITED], "all\ncustomer:9\n\x1f0 6000"),
        (lambda customer: lanes.limit(f"customer:{customer}", rate="1/s"), "customer:9\n\x1f1000"),
    ],
)
@pytest.mark.parametrize("door", ["delay", "chain", "countdown", "route", "headers"])
def test_a_lane_may_have_a_rate(build: Build, lane: Any, stored: str, door: str) -> None:
    routed = {"task_routes": {"charge": {"lane": lane}}} if door == "route" else {}
    app = build(**routed)
    options = {} if door == "route" else {"lane": lane}
    charge = app.task(name="charge", shared=False, **options)(plain)
    match door:
        case "delay" | "route":
            charge.delay(9)
        case "chain":
            (charge.s(9) | charge.si(8)).apply_async()
        case "countdown":
            charge.apply_async((9,), countdown=-1)
        case "headers":
            charge.apply_async((9,), headers=lanes.headers(once=("order", 1)))
    client = app.lanes.store.client
    app.lanes.store.sweep(1000)
    [message] = client.keys(keys.MESSAGE + "*")
    assert client.hget(message, "lanes").decode() == stored


def test_a_group_cannot_have_a_lane_with_a_rate(build: Build) -> None:
    charge = build().task(name="charge", shared=False, lane=LIMITED)(plain)
    with pytest.raises(lanes.PublishRefused, match="cannot have a lane with a rate"):
        charge.apply_async((9,), headers=lanes.headers(group=lanes.Group("g", 1, 1, 2)))
