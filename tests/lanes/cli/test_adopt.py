"""`celery -A shop lanes adopt celery`: which messages of a queue move into lanes, and what it says about others.

Stock Celery publishes them. tests/lanes/worker/test_adopting.py kills it while workers run.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chain, group
from click.testing import CliRunner
from kombu import Exchange, Queue

import celery_lanes
from celery_lanes.cli import lanes
from celery_lanes.protocol import NewMessage, keys
from celery_lanes.transport import adoption

Said = Callable[..., str]
PAUSED = "celery.lanes is paused: no worker starts what is there until `lanes resume queue celery.lanes`\n"


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    with Celery("shop", broker=redis_url, set_as_current=False) as app:
        celery_lanes.install(app)
        app.conf.broker_transport_options = {"visibility_timeout": 60}

        @app.task(name="charge", lane="customer:{customer}", shared=False)
        def charge(customer: int, total: int = 0) -> None: ...

        @app.task(name="mail", shared=False)
        def mail(customer: int) -> None: ...

        yield app
        app.lanes.store.client.close()


@pytest.fixture
def stock(redis_url: str) -> Iterator[Celery]:
    """A program that has not been changed."""
    with Celery("web", broker=redis_url, set_as_current=False) as stock:
        yield stock


@pytest.fixture
def said(app: Celery) -> Said:
    def run(*arguments: str, code: int = 0) -> str:
        ran = CliRunner().invoke(lanes, ["adopt", "celery", *arguments], obj=SimpleNamespace(app=app))
        assert ran.exit_code == code, (ran.output, ran.exception)
        return ran.output

    return run


def lane(app: Celery, key: str) -> list[str]:
    return [each.decode() for each in app.lanes.store.client.zrange(keys.lane(key), 0, -1)]


def taken(app: Celery, queue: str = "celery.lanes") -> Iterator[Any]:
    """The messages of a lane queue as a worker gets them."""
    with app.connection_for_read() as connection:
        known = app.amqp.queues[queue](connection.channel())
        known.declare()
        while message := known.get(accept=["json", "yaml"]):
            yield message


def test_the_backlog_of_a_queue_joins_lanes_in_its_order(app: Celery, stock: Celery, said: Said) -> None:
    # Given messages of two customers in turn, and of a task without a lane between them
    for n in range(250):
        stock.send_task("charge", [n % 2], {"total": n}, task_id=f"c{n}")
        stock.send_task("mail", [n % 2], task_id=f"m{n}")
    # When nothing is to be changed, nothing is
    assert said("--dry-run") == (
        "before: 500 in celery\nwould be moved: 250 of charge into celery.lanes\nwould stay: 250: mail has no lane\n"
    )
    assert app.lanes.store.pending() == 0
    # Then those with a lane move, in their order, and the others stay in theirs
    assert said() == (
        "before: 500 in celery\nmoved: 250 of charge into celery.lanes\nstayed: 250: mail has no lane\n"
        "after: 250 in celery\n"
    )
    assert [lane(app, f"customer:{each}") for each in (0, 1)] == [
        [f"c{n}" for n in range(first, 250, 2)] for first in (0, 1)
    ]
    left = [json.loads(each)["headers"]["id"] for each in app.lanes.store.client.lrange("celery", 0, -1)]
    assert left[::-1] == [f"m{n}" for n in range(250)]
    assert said().splitlines()[1:] == ["stayed: 250: mail has no lane", "after: 250 in celery"]


def test_a_message_keeps_its_content(app: Celery, stock: Celery, said: Said) -> None:
    # Given messages of each format, as chains, groups and chords publish them
    sent: dict[str, dict[str, Any]] = {
        "plain": {},
        "compressed": {"compression": "gzip"},
        "yaml": {"serializer": "yaml"},
        "canvas": {"link": stock.signature("mail", (9,)), "chord": stock.signature("mail", (9,)), "group_id": "g"},
        "old": {"headers": {"x": "ä"}, "expires": 900, "time_limit": 7, "shadow": "s", "reply_to": "r"},
    }
    app.conf.accept_content = ["json", "yaml"]
    for customer, (name, options) in enumerate(sent.items()):
        stock.send_task("charge", [customer], {"total": 1}, task_id=name, **options)
    client = app.lanes.store.client
    before = {}
    for stored in client.lrange("celery", 0, -1):
        message = json.loads(stored)
        before[message["headers"]["id"]] = message
    said()
    # Then a worker gets what it would have got
    after = {message.headers["id"]: message for message in taken(app)}
    assert list(after) == list(sent)
    for customer, (name, message) in enumerate(after.items()):
        assert list(message.payload[:2]) == [[customer], {"total": 1}]
        headers = {key: value for key, value in message.headers.items() if key not in ("lane", "compression")}
        assert headers == {key: value for key, value in before[name]["headers"].items() if key != "compression"}
        assert message.properties["correlation_id"] == name
        assert message.properties["reply_to"] == before[name]["properties"]["reply_to"]
    assert after["canvas"].payload[2]["chord"]["task"] == "mail"


def test_what_follows_names_no_ordinary_queue_any_more(app: Celery, stock: Celery, said: Said) -> None:
    """A queue of the old program would refuse the second task of a chain, which has a lane."""
    charge, mail = (stock.signature(name, (9,), queue="celery") for name in ("charge", "mail"))
    last = group(charge.clone(), charge.clone(), app=stock)
    chain(charge.clone(), charge.clone().set(priority=3), mail.clone(), last, app=stock).apply_async()
    stock.send_task("charge", (9,), link=charge.clone(), compression="gzip")
    assert said(code=1).splitlines()[1:3] == [
        "moved: 1 of charge into celery.lanes",
        'stayed: 1: charge follows it, has a lane, and names the ordinary queue of before (LINDEX "celery" -1)',
    ]
    [message] = taken(app)
    assert message.payload[0] == [9]
    following = [*adoption._signatures(message.payload[2])]
    named = Counter((each["task"], each["options"].get("queue")) for each in following)
    assert named == {("charge", None): 3, ("mail", "celery"): 1, ("celery.group", None): 1}


def test_a_message_of_protocol_1_moves(app: Celery, stock: Celery, said: Said) -> None:
    stock.conf.task_protocol = 1
    stock.send_task("charge", kwargs={"customer": 9}, task_id="old")
    assert "moved: 1 of charge into celery.lanes" in said()
    [message] = taken(app)
    assert (message.payload["id"], message.payload["kwargs"]) == ("old", {"customer": 9})


def test_messages_with_an_eta_become_timers(app: Celery, stock: Celery, said: Said) -> None:
    eta = datetime(2100, 1, 1, tzinfo=UTC)
    stock.send_task("charge", [9], task_id="later", eta=eta)
    stock.send_task("charge", [9], task_id="over", eta=datetime.now(UTC) - timedelta(seconds=5))
    assert "of these, 1 join their lanes at their eta" in said("--dry-run")
    assert "moved: 2 of charge into celery.lanes\nof these, 1 join their lanes at their eta" in said()
    [timer] = app.lanes.store.timers("task later")
    assert (timer.at_ms, timer.lanes) == (eta.timestamp() * 1000, ["customer:9"])
    assert lane(app, "customer:9") == ["over"]


def test_lists_of_priorities_move_in_the_order_in_which_workers_read_them(
    app: Celery, stock: Celery, said: Said
) -> None:
    for priority in (9, 0, 5, 3):
        stock.send_task("charge", [9], task_id=f"p{priority}", priority=priority)
    stock.send_task("mail", [9], priority=9)
    assert said().startswith("before: 5 in celery\nmoved: 4 of charge")
    assert lane(app, "customer:9") == ["p0", "p5", "p3", "p9"]
    assert [app.lanes.store.client.llen(name) for name in ("celery", "celery\x06\x169")] == [0, 1]


def test_what_cannot_be_moved_stays_where_it_is_and_is_named(app: Celery, stock: Celery, said: Said) -> None:
    client = app.lanes.store.client
    stock.send_task("charge", [9], task_id="good")
    stock.send_task("charge", task_id="missing")
    stock.send_task("unknown", [9], task_id="unknown")
    stock.send_task("charge", [9], serializer="pickle", task_id="pickled")
    client.lpush(
        "celery", "no JSON", '{"properties": {}}', '{"headers": {}, "body": "", "properties": {"delivery_tag": 1}}'
    )
    before = client.lrange("celery", 0, -1)
    text = said(code=1)
    assert "moved: 1 of charge into celery.lanes" in text
    assert (
        "stayed: 1: the lane 'customer:{customer}' of charge needs customer, which this message does not have: pass it "
        'as an argument, or pass headers=lanes.headers([…]) (LINDEX "celery" -1)' in text
    )
    assert 'stayed: 1: unknown is not a task of this app, and no route gives it a lane (LINDEX "celery" -2)' in text
    assert re.search(
        r"stayed: 1: its body cannot be read: ContentDisallowed: .*pickle.* \(LINDEX \"celery\" -3\)", text
    )
    assert 'stayed: 2: it is not a message of kombu (LINDEX "celery" -4, LINDEX "celery" -5)' in text
    assert client.lrange("celery", 0, -1) == before[:-1]
    assert text.endswith("after: 6 in celery\n")


def test_keys_and_tasks_of_the_command(app: Celery, stock: Celery, said: Said) -> None:
    stock.send_task("unknown", kwargs={"account": 7}, task_id="u")
    stock.send_task("mail", [7], task_id="m")
    stock.send_task("charge", [7], task_id="c")
    assert "stayed: 2: unknown is not one of --task" not in said("--task", "mail", "--task", "unknown", code=1)
    text = said("--key", "account:{account}", "--task", "unknown")
    assert "moved: 1 of unknown into celery.lanes" in text
    assert lane(app, "account:7") == ["u"]
    said("--key", "customer:{customer}", "--key", "all", "--task", "mail")
    said()
    assert lane(app, "customer:7") == ["m", "c"]
    assert lane(app, "all") == ["m"]


def test_a_route_may_have_the_lane(app: Celery, stock: Celery, said: Said) -> None:
    app.conf.task_queues = [
        Queue("celery", routing_key="celery"),
        Queue("orders", Exchange(""), "orders", queue_arguments=celery_lanes.QUEUE_ARGUMENTS),
        Queue("others", Exchange(""), "others", queue_arguments=celery_lanes.QUEUE_ARGUMENTS),
    ]
    app.conf.task_routes = {"unknown": {"lane": "account:{0}", "queue": "others"}}
    stock.send_task("unknown", [7])
    stock.send_task("charge", [7])
    assert said().splitlines()[1:3] == ["moved: 1 of charge into orders", "moved: 1 of unknown into others"]
    stock.send_task("charge", [7])
    assert "moved: 1 of charge into others" in said("--to", "others")
    assert "there is no lane queue nowhere: the queues are orders, others" in said("--to", "nowhere", code=1)


def test_a_copy_of_a_message_that_waits_is_removed(app: Celery, stock: Celery, said: Said) -> None:
    stock.send_task("charge", [9], task_id="once")
    client = app.lanes.store.client
    [stored] = client.lrange("celery", 0, -1)
    client.lpush("celery", stored)
    assert said() == (
        "before: 2 in celery\nmoved: 1 of charge into celery.lanes\nremoved: 1, whose ids wait already\n"
        "after: 0 in celery\n"
    )
    assert lane(app, "customer:9") == ["once"]


def test_what_workers_have_not_acknowledged(
    app: Celery, stock: Celery, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "ANSWER_WITHIN_S", 0.1)
    # Given messages that workers of stock kombu have taken, two of them long ago, and one that has died
    for n in range(4):
        stock.send_task("charge", [9], task_id=f"c{n}")
    stock.send_task("mail", [9], task_id="other", queue="others", routing_key="others")
    with stock.connection_for_read() as connection:
        channel = connection.channel()
        queues = [stock.amqp.queues["celery"](channel), Queue("others", Exchange("others"), "others")(channel)]
        channel.qos.restore_at_shutdown = False
        for queue in queues:
            while queue.get():
                pass
    client = app.lanes.store.client
    tags = {json.loads(stored)[0]["headers"]["id"]: tag for tag, stored in client.hgetall("unacked").items()}
    for each in ("c0", "c1"):
        client.zincrby("unacked_index", -3600, tags[each])
    # When they are moved
    assert "would be put back into celery: 2, taken longer ago than the visibility timeout" in said("--dry-run")
    text = said()
    # Then those that any worker would put back are, in their order, and the others stay with their workers
    assert lane(app, "customer:9") == ["c0", "c1"]
    assert "put back into celery: 2, taken longer ago than the visibility timeout" in text
    assert (
        "not acknowledged: 2, which workers have taken. They run there; if a worker has died, they are back in" in text
    )
    assert "celery 60 s after it took them" in text
    # And all that no worker reports, if asked
    assert "put back into celery: 2, of no worker that answers" in said("--unacked")
    assert lane(app, "customer:9") == ["c0", "c1", "c2", "c3"]
    assert list(client.hgetall("unacked")) == [tags["other"]]


@pytest.mark.parametrize("read", ["zrange", "hscan_iter"])
def test_a_message_that_is_taken_while_these_are_read_is_not_overdue(
    app: Celery, stock: Celery, said: Said, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    # Given a worker that takes a message as soon as one of the keys of unacknowledged ones has been read
    client = app.lanes.store.client
    stock.send_task("charge", [9], task_id="taken")
    stored_read = getattr(client, read)

    def read_and_take(*arguments: Any, **options: Any) -> Any:
        found = list(stored_read(*arguments, **options))
        if element := client.rpop("celery"):
            client.zadd("unacked_index", {"tag": time.time()})
            client.hset("unacked", "tag", json.dumps([json.loads(element), "", "celery"]))
        return found

    monkeypatch.setattr(client, read, read_and_take)
    # When the queue is adopted
    said()
    # Then the message stays with the worker
    assert (client.hkeys("unacked"), client.llen("celery"), lane(app, "customer:9")) == ([b"tag"], 0, [])


def test_messages_that_a_worker_takes_in_between_are_not_moved(
    app: Celery, stock: Celery, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker that takes some between two steps
    monkeypatch.setattr(adoption, "AT_ONCE", 10)
    for n in range(95):
        stock.send_task("charge", [9], task_id=f"c{n}")
    client, store = app.lanes.store.client, app.lanes.store
    adopt, gone = type(store).adopt, list[str]()

    def adopt_late(*arguments: Any, **options: Any) -> Any:
        gone.extend(json.loads(each)["headers"]["id"] for each in client.rpop("celery", 3) or ())
        return adopt(*arguments, **options)

    monkeypatch.setattr(type(store), "adopt", adopt_late)
    text = said()
    assert text.endswith(f"after: 0 in celery; {len(gone)} taken by workers meanwhile\n")
    # Then each is in one place
    assert sorted([*gone, *lane(app, "customer:9")]) == sorted(f"c{n}" for n in range(95))
    assert client.llen("celery") == 0


def test_a_queue_that_has_become_a_lane_queue_is_adopted_too(app: Celery, stock: Celery, said: Said) -> None:
    app.conf.task_queues = [Queue("celery", Exchange(""), "celery", queue_arguments=celery_lanes.QUEUE_ARGUMENTS)]
    said_before = said("--dry-run")
    assert said_before == "before: 0 in celery\n"
    for n in range(3):
        stock.send_task("charge", [9], task_id=f"c{n}")
    app.tasks["charge"].apply_async((9,), task_id="new")
    assert "moved: 3 of charge into celery" in said()
    assert lane(app, "customer:9") == ["new", "c0", "c1", "c2"]


def test_what_waits_in_the_queue_of_the_app_itself_is_in_its_lanes(app: Celery, stock: Celery, said: Said) -> None:
    app.tasks["charge"].apply_async((9,), task_id="new")
    stock.send_task("charge", [9], task_id="old", queue="celery.lanes")
    later = Celery("shop", broker=app.conf.broker_url, set_as_current=False)  # which has used no queue yet
    celery_lanes.install(later)

    @later.task(name="charge", lane="customer:{customer}", shared=False)
    def charge(customer: int, total: int = 0) -> None: ...

    ran = CliRunner().invoke(lanes, ["adopt", "celery.lanes"], obj=SimpleNamespace(app=later))
    assert ran.exit_code == 0, ran.output
    assert lane(app, "customer:9") == ["new", "old"]
    later.close()


def moved_out(app: Celery, code: int = 0) -> str:
    arguments = ["move-out", "celery.lanes", "--to", "celery"]
    ran = CliRunner().invoke(lanes, arguments, obj=SimpleNamespace(app=app))
    assert ran.exit_code == code, (ran.output, ran.exception)
    return ran.output


def test_waiting_messages_move_out_as_stock_celery_would_have_published_them(
    app: Celery, stock: Celery, said: Said
) -> None:
    # Given messages of each format that were moved in, one of which runs, and a dead letter
    app.conf.accept_content = ["json", "yaml"]
    eta = datetime(2100, 1, 1, tzinfo=UTC)
    sent: dict[str, dict[str, Any]] = {
        **{f"c{n}": {} for n in range(150)},
        "compressed": {"compression": "gzip"},
        "yaml": {"serializer": "yaml"},
        "later": {"eta": eta},
        "canvas": {"chord": stock.signature("mail", (9,)), "group_id": "g", "priority": 0},
    }
    for n, (name, options) in enumerate(sent.items()):
        stock.send_task("charge", [n % 7], {"total": 1}, task_id=name, **options)
    client, store = app.lanes.store.client, app.lanes.store
    before = {json.loads(each)["headers"]["id"]: json.loads(each) for each in client.lrange("celery", 0, -1)}
    said()
    store.append([NewMessage("dead", "celery.lanes", b'{"headers":{"task":"charge"}}\n[[],{},{}]', ["customer:1"])])
    [runs] = store.turn(["celery.lanes"], holder="w", lease_ms=60_000, room=1).leased
    # When they move out
    text = moved_out(app)
    # Then those behind the one that runs stay, until it has ended
    behind = [name for n, name in enumerate(sent) if n % 7 == 0 and name not in ("later", runs.id)]
    assert text.startswith(
        f"moved: {155 - 1 - len(behind)} from celery.lanes to celery\nof these, 1 run at their eta\n"
    )
    assert f"stayed: {len(behind)} waiting, 1 leased: with workers, or behind those. Run this again" in text
    # And no worker with lanes gets them meanwhile, because those before them are in the list
    store.bury(runs.id, runs.fence, {"type": "ValueError", "message": "no stock"})
    assert store.turn(["celery.lanes"], holder="w", lease_ms=60_000, room=9).leased == []
    assert "stayed: 1 in the dead letters" in moved_out(app)
    # And a stock worker gets what it would have got, in the order of each lane
    with stock.connection_for_read() as connection:
        queue = stock.amqp.queues["celery"](connection.channel())
        after = list(iter(lambda: queue.get(accept=["json", "yaml"]), None))
    assert sorted(each.headers["id"] for each in after) == sorted({*sent, "dead"} - {runs.id})
    for customer in range(7):
        mine = [each.headers["id"] for each in after if each.headers["id"] in sent and each.payload[0] == [customer]]
        expected = [name for n, name in enumerate(sent) if n % 7 == customer and name != runs.id]
        assert [each for each in mine if each != "later"] == [each for each in expected if each != "later"]
    for message in after:
        if message.headers["id"] != "dead":
            original = before[message.headers["id"]]["headers"]
            given = {name: value for name, value in message.headers.items() if name != "eta"}
            assert given == {name: value for name, value in original.items() if name in given}
            assert datetime.fromisoformat(message.headers["eta"]) == eta if original["eta"] else True
    assert store.pending() == 0


def test_a_message_that_has_failed_keeps_its_attempts(app: Celery, stock: Celery, said: Said) -> None:
    stock.send_task("charge", [9], task_id="fails")
    said()
    store = app.lanes.store
    [leased] = store.turn(["celery.lanes"], holder="w", lease_ms=60_000, room=1).leased
    store.retry(leased.id, leased.fence, delay_ms=3_600_000, problem={"type": "E"})
    assert moved_out(app) == f"moved: 1 from celery.lanes to celery\n{PAUSED}"
    [stored] = store.client.lrange("celery", 0, -1)
    headers = json.loads(stored)["headers"]
    assert headers["retries"] == 1
    assert datetime.fromisoformat(headers["eta"]) > datetime.now(UTC) + timedelta(minutes=50)


def test_groups_and_wrong_queues_stay(app: Celery) -> None:
    group = celery_lanes.Group("g", quiet_ms=1, max_wait_ms=1, most=2)
    app.tasks["charge"].apply_async((9,), headers=celery_lanes.headers(["customer:9"], group=group))
    assert moved_out(app) == (
        "moved: 0 from celery.lanes to celery\n"
        f"stayed: 1 collecting: with workers, or behind those. Run this again when they have ended\n{PAUSED}"
    )
    for arguments, sentence in (
        (["celery", "--to", "x"], "there is no lane queue celery: the queues are celery.lanes"),
        (["celery.lanes", "--to", "celery.lanes"], "celery.lanes is a lane queue: name an ordinary one"),
        (["celery.lanes", "--to", ""], "'' cannot be a queue of Redis: name an ordinary one"),
        (["celery.lanes", "--to", "lanes:counts"], "'lanes:counts' cannot be a queue of Redis: name an ordinary one"),
    ):
        ran = CliRunner().invoke(lanes, ["move-out", *arguments], obj=SimpleNamespace(app=app))
        assert (ran.exit_code, sentence in ran.output) == (1, True), ran.output
