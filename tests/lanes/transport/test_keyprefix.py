"""The transport option `global_keyprefix`: apps with different prefixes share one database and never see each other.

Each app has a user of Redis who may use only keys and channels with its prefix, so that a command without it fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from redis import Redis

from celery_lanes.cli import lanes, status
from celery_lanes.cli.context import Context
from celery_lanes.cli.metrics import families
from celery_lanes.protocol import NewMessage, Store, connect, keys
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.waiting import until

PREFIXES = ("shop:", "desk:")

#: A user who is not allowed all channels needs each pattern to which it subscribes.
CELERYS_PATTERNS = ("/0.celery.pidbox", "/0.celeryev/worker.*")

AppMaker = Callable[[str], Lab]


@pytest.fixture
def make_app(make_lab: LabMaker, redis_url: str, tmp_path: Path) -> Iterator[AppMaker]:
    with Redis.from_url(redis_url) as admin:

        def make(prefix: str) -> Lab:
            name = f"user{PREFIXES.index(prefix)}"
            patterns = [f"~{prefix}*", f"&{prefix}*", *(f"&{prefix}{pattern}" for pattern in CELERYS_PATTERNS)]
            admin.execute_command("ACL", "SETUSER", name, "reset", "on", ">secret", "+@all", *patterns)
            url = redis_url.replace("//", f"//{name}:secret@")
            options = {"global_keyprefix": prefix, "lease_seconds": 3}
            lab = make_lab(url, options=options, lanes_control=True)
            lab.directory = tmp_path / name
            lab.directory.mkdir()
            return lab

        yield make


def names(url: str) -> set[bytes]:
    with connect(url) as client:
        return set(client.scan_iter())


def ordered(lab: Lab) -> list[str]:
    """The messages that have ended, without that of the ordinary queue."""
    return [message for message in ids(lab.history, "end") if message != "ordinary"]


def status_of(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, int]]:
    monkeypatch.setattr(status, "RATE_OVER_S", 0.0)
    ran = CliRunner().invoke(lanes, ["status", "--json"], obj=SimpleNamespace(app=lab.app))
    assert ran.exit_code == 0, ran.output
    found: dict[str, dict[str, int]] = json.loads(ran.output)["groups"]
    return found


@pytest.mark.parametrize(("pool", "slots"), [("prefork", 2), ("gevent", 4)])
def test_two_apps_share_a_database(
    make_app: AppMaker, redis_url: str, pool: str, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two apps that differ in their prefixes, and the same messages in both
    shop, desk = apps = [make_app(prefix) for prefix in PREFIXES]
    for number, app in enumerate(apps):
        app.publish("first", ["lane"], gate="gate")
        for message in ("second", *["third"][: number + 1]):
            app.publish(message, ["lane"])
        app.publish_unordered("plain", "ordinary")
        app.send("later", ["lane"], countdown=3600)
        app.app.lanes.store.pause("lane", "elsewhere")
    # When a worker of the first app is killed, and another one takes over
    first = shop.worker(pool, slots)
    shop.started("first", "ordinary")
    first.kill_all()
    shop.open("gate")
    shop.worker(pool, slots)
    shop.drained()
    # Then it has run its messages in order, and the second app has run nothing
    assert ordered(shop) == ["first", "second", "third"]
    assert not desk.history
    assert (shop.count("settled"), desk.count("settled"), desk.pending()) == (3, 0, 3)
    assert status_of(shop, monkeypatch)["orders"]["backlog"] == 0
    assert status_of(desk, monkeypatch)["orders"]["backlog"] == 3
    # And its remote control reaches its own workers only
    assert not desk.app.control.ping(timeout=1)
    worker = desk.worker(pool, slots)
    desk.open("gate")
    desk.drained()
    assert ordered(desk) == ["first", "second", "third"]
    assert len(desk.app.control.ping(timeout=3)) == 1
    assert "ERROR" not in worker.log
    # And each key has the prefix of an app
    prefixes = tuple(prefix.encode() for prefix in PREFIXES)
    assert all(name.startswith(prefixes) for name in names(redis_url))
    assert {name.partition(b":")[0] for name in names(redis_url)} == {b"shop", b"desk"}


def test_a_stop_reaches_the_run_of_its_own_app(make_app: AppMaker) -> None:
    shop, desk = apps = [make_app(prefix) for prefix in PREFIXES]
    for app in apps:
        app.worker("threads", 2)
        app.send("talk", ["talk"], task="converse", kwargs={"name": "talk", "gate": "gate"})
        until(lambda app=app: b"done" in (app.client.hget(keys.journal("talk"), "1") or b""))
    shop.send("stop", ["talk"], stops=True)
    shop.drained()
    assert desk.pending() == 1
    desk.open("gate")
    desk.drained()
    assert (shop.count("stopped"), desk.count("stopped")) == (1, 0)


def test_the_tools_of_an_app_read_its_own_keys(make_app: AppMaker) -> None:
    shop, desk = (make_app(prefix) for prefix in PREFIXES)
    shop.publish("message", ["lane"])
    assert shop.app.lanes.store.client.llen("orders.0") == 1
    for app, ready in ((shop, 1), (desk, 0)):
        shown = {
            sample.labels["queue"]: sample.value
            for metric in families(Context(app.app))
            for sample in metric.samples
            if sample.name == "lanes_ready"
        }
        assert shown["orders.0"] == ready
        ran = CliRunner().invoke(lanes, ["lane", "lane", "--json"], obj=SimpleNamespace(app=app.app))
        assert ('"in_lane": 1' in ran.output) == bool(ready), ran.output


def test_an_app_without_a_prefix_uses_the_names_as_they_are(make_lab: LabMaker, redis_url: str) -> None:
    make_lab().publish("message", ["lane"])
    assert b"lanes:message:message" in names(redis_url)


def test_a_command_with_unknown_keys_is_not_sent(redis_url: str) -> None:
    with connect(redis_url, prefix="shop:") as client:
        with pytest.raises(ValueError, match="'OBJECT' cannot be sent with a key prefix"):
            client.object("ENCODING", "key")
        Store(client).append([NewMessage("message", "orders", b"{}\n[]", ["lane"])])
        with client.pubsub() as listener:
            listener.subscribe("news")
            client.publish("news", "text")
            until(lambda: (listener.get_message(timeout=1) or {}).get("data") == b"text")
    assert all(name.startswith(b"shop:") for name in names(redis_url))
