"""`celery -A shop lanes …` with an app that knows nothing but celery_lanes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import click
import pytest
from celery import Celery
from click.testing import CliRunner
from kombu import Queue

import celery_lanes
from celery_lanes.cli import dead, lanes, metrics, status
from celery_lanes.cli.context import CommandError
from celery_lanes.cli.run import act, run
from celery_lanes.protocol import Limited, NewMessage, Rate, keys
from celery_lanes.transport.publish import timer_of
from tests.lanes.test_vocabulary import FOREIGN

Said = Callable[..., str]
STORED = b'{"headers":{"task":"charge","argsrepr":"(7,)"}}\n[[{"order":7}],{},{}]'
ORDER = {"task": "charge", "args": [{"order": 7}], "kwargs": {}}


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    with Celery("shop", broker=redis_url, set_as_current=False) as app:
        celery_lanes.install(app)
        app.conf.task_queues = [
            Queue(name, queue_arguments=celery_lanes.QUEUE_ARGUMENTS) for name in ("orders.0", "mail")
        ]
        for number in (1, 2, 3):
            app.lanes.store.append([NewMessage(f"m{number}", "orders.0", STORED, ["customer:9"])])
        yield app
        app.lanes.store.client.close()


@pytest.fixture
def said(app: Celery, monkeypatch: pytest.MonkeyPatch) -> Said:
    monkeypatch.setattr(status, "RATE_OVER_S", 0.0)

    def run(*arguments: str, code: int = 0) -> str:
        ran = CliRunner().invoke(lanes, arguments, obj=SimpleNamespace(app=app))
        assert ran.exit_code == code, ran.output
        assert not FOREIGN.findall(ran.output)
        return ran.output

    return run


def bury(app: Celery, queue: str = "orders.0") -> None:
    [leased] = app.lanes.store.turn([queue], holder="east:1:a", lease_ms=60_000, room=1).leased
    app.lanes.store.bury(leased.id, leased.fence, {"type": "ValueError", "message": "no stock"})


def test_status_counts_messages_by_group(said: Said) -> None:
    assert said("status").split()[:3] == ["group", "queue", "backlog"]
    shown = json.loads(said("status", "--json"))
    assert list(shown) == ["groups", "lanes", "paused_since_ms", "timers"]
    assert (shown["groups"]["orders"]["backlog"], shown["groups"]["mail"]["backlog"]) == (3, 0)
    assert shown["lanes"][0]["lane"] == "customer:9"
    assert str(shown["timers"]["late_s"]) == "0.0"


def test_status_says_that_a_message_is_over_its_rate(app: Celery, said: Said) -> None:
    rate = Rate("ann", 1, 3_600_000, "delay")
    app.lanes.store.append([NewMessage(f"n{n}", "mail", STORED, [f"ann:{n}"], rate=rate) for n in (1, 2)])
    app.lanes.store.append([NewMessage("n3", "mail", STORED, ["ann:2"])])
    assert re.search(r"ann:2 +1 +.*over its rate: waits for its turn for ", said("status"))


def test_a_limit_is_shown_and_paused_by_its_key(app: Celery, said: Said) -> None:
    # Given a limit with two messages that wait
    limit = Limited("tenant:7", 1)
    app.lanes.store.append([NewMessage(f"t{number}", "mail", STORED, [limit]) for number in range(3)])
    # Then the status and the list of its messages name it
    shown = json.loads(said("status", "--now", "--json"))
    assert (shown["groups"]["mail"]["ready"], shown["groups"]["mail"]["gated"]) == (1, 2)
    [busy] = [each for each in shown["lanes"] if each["lane"] == "tenant:7"]
    assert (busy["waiting"], busy["first"]["id"], busy["first"]["state"]) == (2, "t1", "gated")
    assert re.search(r"tenant:7 +2 +charge\(7\): waits for its limit tenant:7 for ", said("status", "--now"))
    in_limit = json.loads(said("lane", "tenant:7", "--json"))
    assert [(each["id"], each["state"]) for each in in_limit["messages"]] == [
        ("t0", "ready"),
        ("t1", "gated"),
        ("t2", "gated"),
    ]
    # And it is paused and resumed
    assert said("pause", "lane", "tenant:7") == "paused tenant:7\n"
    assert json.loads(said("status", "--now", "--json"))["groups"]["mail"]["gated"] == 3
    assert said("resume", "lane", "tenant:7") == "resumed tenant:7\n"
    assert json.loads(said("status", "--now", "--json"))["groups"]["mail"]["ready"] == 1


def test_a_lane_is_shown_and_paused_by_its_key(app: Celery, said: Said) -> None:
    app.lanes.store.schedule(NewMessage("2b5c", "orders.0", STORED, ["customer:9"]), *timer_of("2b5c"), in_ms=60_000)
    text = said("lane", "customer:9")
    assert text.startswith("customer:9: 3 in the lane\n")
    assert "timer eta: due " in text
    assert said("pause", "lane", "customer:9") == "paused customer:9\n"
    assert said("resume", "lane", "customer:9") == "resumed customer:9\n"
    assert said("pause", "group", "orders") == "paused orders\n"
    assert said("lane", "customer:1") == "customer:1 has no waiting, running or buried messages and no timers\n"
    assert "there is no group shop: the groups are orders, mail" in said("pause", "group", "shop", code=1)
    assert "Invalid value for 'LANE': it is empty" in said("pause", "lane", "", code=2)


@pytest.mark.parametrize("key", ["customer:bob ", " bob", " ", "-1001234", "--json"])
def test_a_key_is_taken_as_it_is(app: Celery, said: Said, key: str) -> None:
    app.lanes.store.append([NewMessage("m4", "mail", STORED, [key])])
    assert f"paused {key}\n" in said("pause", "lane", "--", key)
    assert json.loads(said("lane", "--json", "--", key))["in_lane"] == 1
    assert [*app.lanes.store.client.hkeys(keys.PAUSED)] == [f"lane:{key}".encode()]
    assert f"resumed {key}\n" in said("resume", "lane", "--", key)
    assert "no buried message matches" in said("dead", "list", f"--lane={key}")


@pytest.mark.parametrize(
    ("args", "kwargs", "title"),
    [
        ([9], {"total": 20}, "charge(9, total=20)"),
        ([], {"customer": "Ann's"}, 'charge(customer="Ann\'s")'),
        ([9, 2], {}, "charge(9, 2)"),
        ([], {}, "charge()"),
        ([[1, 2]], {"of": [3]}, "charge([1, 2], of=[3])"),
        (["\u0416" * 1500], {"note": "\u0416" * 1500}, "charge('\u0416\u0416"),
        ([9], {"note": "x" * 2000}, f"charge(9, note='{'x' * 44}"),
    ],
)
def test_a_message_is_shown_as_the_call_of_its_task(
    app: Celery, said: Said, args: list[Any], kwargs: dict[str, Any], title: str
) -> None:
    app.send_task("charge", args, kwargs, task_id="m9", headers=celery_lanes.headers(["customer:1"]), queue="mail")
    bury(app, "mail")
    assert f"  {title}" in said("dead", "list")
    assert said("dead", "show", "m9").startswith(f"m9  {title}")
    assert json.loads(said("dead", "show", "m9", "--json"))["message"] == {
        "task": "charge",
        "args": args,
        "kwargs": kwargs,
    }


def test_dead_letters_are_listed_replayed_and_dropped(app: Celery, said: Said) -> None:
    bury(app)
    assert said("dead", "list", "--lane", "customer:9", "--group", "orders").split()[:4] == [
        *("id", "buried", "message", "error")
    ]
    assert json.loads(said("dead", "show", "m1", "--json"))["message"] == ORDER
    assert said("dead", "replay", "m1") == "replayed 1 message\n"
    bury(app)
    assert said("dead", "drop", "--all", "--yes") == "dropped 1 message\n"
    assert "--lane and --group require --all" in said("dead", "drop", "m1", "--lane", "customer:9", code=2)


def test_nothing_is_dropped_if_stdin_is_closed(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(app)
    monkeypatch.setattr(dead, "sys", SimpleNamespace(stdin=None))
    with pytest.raises(CommandError, match="There is no terminal to confirm on: use --yes"):
        run(app, "dead", "drop", "--all")


def test_timers_of_tasks_are_found_by_their_lane_and_group(app: Celery, said: Said) -> None:
    app.lanes.store.schedule(NewMessage("2b5c", "orders.0", STORED, ["customer:9"]), *timer_of("2b5c"), in_ms=60_000)
    for option in (("--lane", "customer:9"), ("--group", "orders")):
        assert json.loads(said("timers", "list", "--json", *option))["message"] == ORDER
    assert said("timers", "list", "--group", "mail") == "no timer matches\n"
    assert said("timers", "cancel", "eta", "--lane", "customer:9") == "cancelled 2b5c\n"


def test_a_timer_that_is_due_after_the_year_9999_is_shown(app: Celery, said: Said) -> None:
    # datetime.max, rounded up to a whole millisecond, is in the year 10000
    app.send_task("charge", queue="orders.0", headers=celery_lanes.headers(["customer:1"]), eta=datetime.max)
    assert "9999-12-31 23:59:59 UTC" in said("timers", "list")
    assert "timer eta: due 9999-12-31 23:59:59 UTC" in said("lane", "customer:1")
    # And it can leave
    app.lanes.store.purge("orders.0")
    assert "of these, 1 run at their eta" in said("move-out", "orders.0", "--to", "stock")


@pytest.mark.parametrize("due_ms", ["5" * 5000, "\N{ARABIC-INDIC DIGIT THREE}", "x", ""])
def test_a_time_that_no_timer_can_have_is_no_id(said: Said, due_ms: str) -> None:
    assert "there is no timer a:timer:" in said("timers", "cancel", f"a:timer:{due_ms}:1", code=1)


def test_check_reports_messages_that_a_client_without_lanes_has_published_with_a_priority(
    app: Celery, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celery_lanes.cli.check.ANSWER_WITHIN_S", 0.1)
    stock = Celery(broker=app.conf.broker_url)
    for priority in (0, 3, 9):
        stock.send_task("charge", args=["9"], queue="orders.0", priority=priority)
    assert "WRONG queues: 2 messages wait in orders.0 with a priority, which lanes do not read" in said("check", code=1)


def test_check_and_losses(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery_lanes.cli.check.ANSWER_WITHIN_S", 0.1)
    assert [line.split(":")[0] for line in said("check", code=1).splitlines()] == [
        *("ok    redis", "ok    durability", "ok    clock", "WRONG workers")
    ]
    assert said("acknowledge-loss") == "there is no loss to acknowledge\n"


@pytest.mark.parametrize(
    ("broker", "place"),
    [
        ("redis+socket:///nowhere/redis.sock?virtual_host=2", "/nowhere/redis.sock"),
        ("redis://:secret@[::1]:1/0", "[::1]:1"),
        ("redis://127.0.0.1:1", "127.0.0.1:1"),
    ],
)
def test_a_command_names_the_server_that_does_not_answer(broker: str, place: str) -> None:
    with Celery("shop", broker=broker, set_as_current=False) as app:
        celery_lanes.install(app)
        ran = CliRunner().invoke(lanes, ["status"], obj=SimpleNamespace(app=app))
    assert (ran.exit_code, ran.stderr.startswith(f"Redis at {place} does not answer: ")) == (1, True), ran.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("dead", "show"),
        ("dead", "replay", "m1"),
        ("resume", "queue"),
        ("timers", "cancel"),
        ("adopt",),
        ("move-out", "mail", "--to"),
        ("dead", "list", "--group"),
    ],
)
def test_an_argument_that_is_not_utf8_is_refused(said: Said, arguments: tuple[str, ...]) -> None:
    assert r"'\udcff\udcfe' is not UTF-8 text" in said(*arguments, os.fsdecode(b"\xff\xfe"), code=2)


@pytest.mark.parametrize("key", ["a\nb", "customer:\x00", "x" * 257, "\N{GREEK SMALL LETTER PI}" * 129, "\udcff"])
@pytest.mark.parametrize(
    "arguments", [("lane",), ("pause", "lane"), ("resume", "lane"), ("timers", "list", "--lane")], ids=" ".join
)
def test_a_key_that_no_message_can_have_is_refused(said: Said, arguments: tuple[str, ...], key: str) -> None:
    assert "is not a lane key: use a text of 1 to 256 bytes" in said(*arguments, key, code=2)


@pytest.mark.parametrize("every", ["nan", "inf", "1e400", "1e300"])
def test_a_pause_that_never_ends_is_refused(said: Said, every: str) -> None:
    assert "Invalid value for '--every'" in said("status", "--watch", "--every", every, code=2)


def test_metrics_say_where_they_listen(app: Celery, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise this process, and all that it starts, would block the signals from here on
    monkeypatch.setattr(metrics.signal, "pthread_sigmask", lambda *_: None)
    for host in ("a..b", "x" * 64):
        assert said("metrics", "--port", "0", "--host", host, code=1).startswith(f"cannot listen on {host}:0: ")
    monkeypatch.setattr(metrics, "_serve", lambda *_: SimpleNamespace(server_port=9808, shutdown=lambda: None))
    monkeypatch.setattr(metrics.signal, "sigwait", lambda _: None)
    assert said("metrics", "--host", "::1") == "metrics at http://[::1]:9808/metrics\n"


def test_a_limit_of_any_size_lists_all_timers(app: Celery, said: Said) -> None:
    assert said("timers", "list", "--limit", "9" * 30) == "no timer is set\n"
    app.lanes.store.schedule(NewMessage("2b5c", "orders.0", STORED, ["customer:9"]), *timer_of("2b5c"), in_ms=60_000)
    assert "2b5c" in said("timers", "list", "--limit", "9" * 30)


def test_a_key_of_redis_that_is_no_queue_is_refused(app: Celery, said: Said) -> None:
    app.lanes.store.client.hset("orders", "id", "7")
    assert said("adopt", "orders", code=1) == "'orders' cannot be a queue of Redis: name an ordinary one\n"
    # And an error of Redis is not called an outage
    app.lanes.store.client.set(keys.DEAD, "")
    assert " answers with an error: WRONGTYPE" in said("dead", "list", code=1)


@pytest.mark.parametrize(
    ("broker", "why"),
    [
        ("garbage", "Redis URL must specify one of the following schemes"),
        ("http://x", "No such transport: http"),
        ("amqp://localhost", "Redis URL must specify one of the following schemes"),
        ("memory://", "Redis URL must specify one of the following schemes"),
        ("redis://127.0.0.1:99999/0", "Port out of range 0-65535"),
        ("redis://127.0.0.1:1/abc", "'abc' is not a database of Redis: use a number"),
        ("redis://127.0.0.1:1;redis://127.0.0.1:2", "several brokers are not supported: name one server"),
        ("sentinel://127.0.0.1:1", "a sentinel:// URL needs the name of the master that Sentinel watches"),
    ],
)
@pytest.mark.parametrize("command", [("status", "--now"), ("check",), ("adopt", "celery"), ("acknowledge-loss",)])
def test_a_broker_that_is_not_redis_is_one_sentence(broker: str, why: str, command: tuple[str, ...]) -> None:
    with Celery("shop", broker=broker, set_as_current=False) as app:
        celery_lanes.install(app)
        ran = CliRunner().invoke(lanes, command, obj=SimpleNamespace(app=app))
    sentence = f"the broker of this app must be Redis, such as redis://127.0.0.1:6379/0: {why}"
    assert (ran.exit_code, ran.stderr.startswith(sentence), ran.output.count("\n")) == (1, True, 1), ran.output


def test_no_help_mentions_another_package(said: Said) -> None:
    def leaves(command: click.Command, path: tuple[str, ...], app: object) -> Iterator[tuple[str, ...]]:
        yield path
        if isinstance(command, click.Group):
            context = click.Context(command, obj=SimpleNamespace(app=app))
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found
                yield from leaves(found, (*path, name), app)

    paths = list(leaves(lanes, (), None))
    own = {
        "acknowledge-loss",
        "adopt",
        "check",
        "dead",
        "lane",
        "metrics",
        "move-out",
        "outbox",
        "pause",
        "resume",
        "status",
        "timers",
    }
    assert {path[0] for path in paths if path} == own
    for path in paths:
        text = said(*path, "--help").replace("two updates of --watch", "")
        assert not re.findall(r"\{\w+\}|updates?\b", text), path


def test_a_program_runs_commands_and_gets_what_they_say(app: Celery, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(app, "status", "--now", "--json")[0])["groups"]["orders"]["rate"] is None
    assert [each["id"] for each in json.loads(run(app, "lane", "--json", "customer:9")[0])["messages"]] == [
        *("m1", "m2", "m3")
    ]
    bury(app)
    assert len(run(app, "dead", "list", "--json")) == 1
    assert act(app, "replay", "m1") == "replayed 1 message"
    assert act(app, "pause lane", "-5") == "paused -5"
    with pytest.raises(CommandError, match="m2 is not buried: it is ready"):
        act(app, "drop", "m2")
    with pytest.raises(CommandError, match="--all is not buried"):
        act(app, "drop", "--all")
    with pytest.raises(CommandError, match="this app has no lanes"):
        run(Celery("other", set_as_current=False), "status", "--now")
    with pytest.raises(CommandError, match="no app is named: use celery -A shop lanes"):
        run(Celery("default", set_as_current=False), "status", "--now")
    assert capsys.readouterr().out == ""
