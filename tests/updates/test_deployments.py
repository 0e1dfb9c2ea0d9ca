"""Deployments that may share a database, and the errors for those that may not."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Barrier

import pytest

from celery_lanes.protocol import connect
from chatlanes.settings import Settings, load
from chatlanes.updates import deployments
from chatlanes.updates.added_bots import new_key
from chatlanes.updates.deployments import Announcement, ForeignDeployment, Presence

KEY, OTHER_KEY = new_key(), new_key()
TOKEN, OTHER_TOKEN = "123456:SECRET-part_of-the_TOKEN", "7890:SECRET-part_of-the_OTHER"


def announced(*bots: int, fills: str, reads: str = "") -> Announcement:
    return Announcement("worker", list(bots), fills.split(), (reads or fills).split(), 1, 1)


ALONE = announced(1, fills="updates")
MANY = "updates.one updates.two updates"


@pytest.mark.parametrize(
    ("other", "is_foreign"),
    [
        (announced(1, fills="updates"), False),
        (announced(2, fills="updates"), True),
        (announced(1, 2, fills="updates.one updates.two", reads=MANY), False),
        (announced(2, 3, fills="updates.one updates.two", reads=MANY), True),
        (announced(2, fills="other"), False),
        (announced(0, 1, fills="updates"), False),
        (announced(0, fills="updates"), True),
    ],
)
def test_deployments_that_may_share_a_database(other: Announcement, is_foreign: bool) -> None:
    assert ALONE.is_foreign_to(other) is other.is_foreign_to(ALONE) is is_foreign


def test_named_bots_of_two_deployments_are_not_foreign() -> None:
    one = announced(1, fills="updates.one", reads="updates.one updates")
    assert not one.is_foreign_to(announced(2, fills="updates.two", reads="updates.two updates"))
    # A bot's name is part of its queue names
    assert one.is_foreign_to(announced(2, fills="updates.one", reads="updates.one updates"))


@pytest.fixture
def bots(redis_url: str) -> tuple[Settings, Settings]:
    first, second = ({"BOT_TOKEN": token, "REDIS_URL": redis_url} for token in (TOKEN, OTHER_TOKEN))
    return load(first, env_file=None), load(second, env_file=None)


def test_conflict_is_found_after_both_started(bots: tuple[Settings, Settings], redis_url: str) -> None:
    # Given two deployments that started while Redis was unreachable
    first, second = (Presence("worker", settings) for settings in bots)
    assert first._announce() == {}
    [other] = second._announce().values()
    assert other.bots == [123456]
    # Then the later one is reported, and the earlier one is not
    assert first._announce() == {}
    with connect(redis_url) as client:
        [sentence] = deployments.foreign(deployments.processes(client))
        assert sentence.startswith("of bot 7890: this database is in use by another deployment, of bot 123456 (worker ")
        assert "SECRET" not in sentence
        # And when it has left, nothing is reported
        second.leave()
        assert not list(deployments.foreign(deployments.processes(client)))


def test_settings_that_differ_within_a_deployment_are_named(redis_url: str) -> None:
    def present(what: str, token: str, **settings: str) -> None:
        given = {"BOT_TOKEN": token, "REDIS_URL": redis_url, **settings}
        Presence(what, load(given, env_file=None))._announce()

    # Given two processes that agree, and a worker of another bot that has queues of its own
    present("poller", TOKEN, ORDER_BY="chat")
    present("worker", TOKEN, ORDER_BY="chat")
    present("worker", OTHER_TOKEN, ORDER_BY="user")
    with connect(redis_url) as client:
        assert not list(deployments.differing(deployments.processes(client)))
        # When one more has another order
        present("worker", f"{TOKEN}2", ORDER_BY="user", LEASE_SECONDS="60")
        token, leases, order = deployments.differing(deployments.processes(client))
    assert token.startswith("BOT_TOKEN differs: one with the digest ")
    assert "SECRET" not in token
    assert leases.startswith("LEASE_SECONDS differs: ")
    assert re.search(r"chat \((poller|worker) \S+:\d+\)", order)
    assert re.search(r"user \(worker \S+:\d+\)", order)


def test_live_deployment_is_refused_and_a_dead_one_waited_out(
    bots: tuple[Settings, Settings], monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    first, second = (Presence("worker", settings) for settings in bots)
    # A deployment that keeps announcing itself is alive
    first.enter()
    with pytest.raises(ForeignDeployment, match="of bot 123456"):
        second.enter(lambda _: first._announce() and None)
    # One that does not counts as gone after a time
    monkeypatch.setattr(deployments, "ALIVE_S", 0.2)
    second.enter()
    with connect(redis_url) as client:
        assert [each.bots for each in deployments.processes(client).values()] == [[7890]]


def test_one_of_two_deployments_that_start_together_is_whole(
    bots: tuple[Settings, Settings], monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    monkeypatch.setattr(deployments, "ANNOUNCE_EVERY_S", 0.02)
    monkeypatch.setattr(deployments, "LOOK_EVERY_S", 0.005)
    together = Barrier(4)

    def starts(presence: Presence) -> bool:
        together.wait()
        try:
            presence.enter()
        except ForeignDeployment:
            return False
        presence.stay()
        return True

    for _ in range(10):
        # Given an empty database
        with connect(redis_url) as client:
            client.flushdb()
        # When the poller and the worker of two deployments start at the same time
        presences = [Presence(what, settings) for settings in bots for what in ("poller", "worker")]
        with ThreadPoolExecutor(4) as pool:
            started = list(pool.map(starts, presences))
        # Then both processes of one deployment run, and none of the other
        assert started in ([True, True, False, False], [False, False, True, True])
        for presence in presences:
            presence.leave()


@pytest.mark.parametrize(
    "stored",
    ["zz", "null", "[]", "{}", '{"what":"w","bots":7,"fills":[],"reads":[],"since_us":"a","seen_us":null}', b"\xff"],
)
def test_announcement_that_cannot_be_read_is_removed(
    bots: tuple[Settings, Settings], redis_url: str, stored: str | bytes
) -> None:
    with connect(redis_url) as client:
        client.hset(deployments.PROCESSES, mapping={"corrupt": stored, b"\xff": stored})
        presence = Presence("worker", bots[0])
        presence.enter()
        assert [each.bots for each in deployments.processes(client).values()] == [[123456]]
        assert client.hlen(deployments.PROCESSES) == 1


def test_deployment_starts_without_redis(tmp_path: Path) -> None:
    away = load({"BOT_TOKEN": TOKEN, "REDIS_URL": "redis://127.0.0.1:1/0"}, env_file=None)
    presence = Presence("worker", away)
    presence.enter()
    presence.leave()


def test_processes_of_added_bots_are_one_deployment(redis_url: str) -> None:
    # Given a worker of added bots alone
    key = new_key()
    added = load({"BOTS_KEY": key, "REDIS_URL": redis_url}, env_file=None)
    Presence("worker", added)._announce()
    # Then a poller with a bot of its own belongs to it, and a deployment without the key does not
    Presence("poller", load({"BOTS_KEY": key, "BOT_TOKEN": TOKEN, "REDIS_URL": redis_url}, env_file=None)).enter()
    other = Presence("worker", load({"BOT_TOKEN": OTHER_TOKEN, "REDIS_URL": redis_url}, env_file=None))
    assert sorted(each.bots for each in other._announce().values()) == [[0], [0, 123456]]
    found = deployments.sentence("x:1", announced(0, fills="updates"))
    assert "another deployment, of bot any that is added (worker x)" in found
    assert "give all processes the same BOTS_KEY" in found


@pytest.mark.parametrize(
    ("one", "other", "is_foreign"),
    [
        ({"BOT_TOKEN": TOKEN, "BOTS_KEY": KEY}, {"BOT_TOKEN": OTHER_TOKEN, "BOTS_KEY": OTHER_KEY}, True),
        ({"BOT_TOKEN": TOKEN, "BOTS_KEY": KEY}, {"BOT_TOKEN": OTHER_TOKEN, "BOTS_KEY": KEY}, True),
        ({"BOT_TOKEN": TOKEN, "BOTS_KEY": KEY}, {"BOT_TOKEN": TOKEN, "BOTS_KEY": OTHER_KEY}, False),
        ({"BOT_TOKEN": TOKEN, "BOTS_KEY": KEY}, {"BOTS_KEY": OTHER_KEY}, True),
        ({"BOTS_KEY": KEY}, {"BOTS_KEY": OTHER_KEY}, True),
        ({"BOTS_KEY": KEY}, {"BOTS_KEY": f"{OTHER_KEY},{KEY}"}, False),
    ],
)
def test_deployments_with_added_bots(
    redis_url: str, one: dict[str, str], other: dict[str, str], is_foreign: bool
) -> None:
    settings = [load({**each, "REDIS_URL": redis_url}, env_file=None) for each in (one, other)]
    Presence("worker", settings[0])._announce()
    assert bool(Presence("worker", settings[1])._announce()) is is_foreign
    with connect(redis_url) as client:
        stored = b"".join(client.hvals(deployments.PROCESSES)).decode()
    assert KEY not in stored
    assert OTHER_KEY not in stored


def test_added_bots_of_an_older_release_are_of_the_same_deployment() -> None:
    # Given the announcements of a release that announces no keys
    older, older_poller = announced(0, fills="updates"), announced(0, 1, fills="updates")
    newer = announced(0, fills="updates", reads="updates key:2")
    assert not older.is_foreign_to(newer)
    assert not newer.is_foreign_to(older_poller)
    # Then a newer one is read by it: it has the same fields
    assert list(asdict(newer)) == ["what", "bots", "fills", "reads", "since_us", "seen_us"]
