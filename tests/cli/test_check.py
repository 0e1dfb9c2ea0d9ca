"""lanes check: one line per check, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from bench.load.many_bots import ManyBots
from celery_lanes.cli import check as generic
from celery_lanes.embedded_server import start_server
from celery_lanes.monitoring import inspection
from celery_lanes.protocol import digest
from chatlanes.cli import check
from chatlanes.cli.context import BotContext
from chatlanes.poller.leader_election import LEADER
from chatlanes.settings import Settings, load
from chatlanes.updates.added_bots import BotRecord, Registry, new_key
from chatlanes.updates.words import WORDS
from chatlanes_sandbox.simulator import Simulator, start
from tests.cli.conftest import Cli

TOKEN = "123456:SECRET-part_of-the_TOKEN"


@pytest.fixture(scope="module")
def telegram() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def simulator(telegram: Simulator) -> Simulator:
    telegram.reset()
    return telegram


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "ANSWER_WITHIN_S", 0.2)


def bot_at(url: str, token: str = TOKEN) -> Settings:
    return load({"BOT_TOKEN": token, "BOT_API_URL": url}, env_file=None)


def lead(client: Redis, for_ms: int) -> None:
    until_ms = inspection.now_us(client) // 1000 + for_ms
    client.hset("poller:123456:leader", mapping={"fence": 1, "holder": "east:99", "until_ms": until_ms})


def test_missing_workers_are_wrong(cli: Cli) -> None:
    lines = cli.said("check")
    assert [line.split(":")[0] for line in lines] == ["ok    redis", "ok    durability", "ok    clock", "WRONG workers"]
    assert lines[-1].startswith("WRONG workers: no worker answers")
    assert cli.code == 1


def test_unreachable_redis_is_the_only_finding(cli: Cli) -> None:
    cli.app.conf.broker_url = "redis://127.0.0.1:1/0"
    [line] = cli.said("check")
    assert line.startswith("WRONG redis: Redis at 127.0.0.1:1 does not answer: ")
    assert cli.code == 1


def test_redis_without_persistence_is_wrong(cli: Cli, tmp_path: Path) -> None:
    with start_server(tmp_path, extra=["--appendonly", "no", "--maxmemory-policy", "allkeys-lru"]) as server:
        cli.app.conf.broker_url = server.url
        lines = cli.said("check")
        cli.client.close()
    assert lines[1].startswith("WRONG durability: Redis keeps no append-only file")
    assert lines[2].startswith("WRONG redis: Redis deletes updates")


def test_early_waitaof_reply_is_wrong(cli: Cli, tmp_path: Path) -> None:
    with start_server(tmp_path, appendfsync="everysec") as server:
        cli.app.conf.broker_url = server.url
        lines = cli.said("check")
        cli.client.close()
    assert lines[1].startswith("WRONG durability: Redis may LOSE the last two seconds of updates if its machine dies")
    assert "its WAITAOF answers too soon" in lines[1]
    assert cli.code == 1


@pytest.mark.slow
def test_full_redis_is_wrong_and_workers_are_unknown(cli: Cli, tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        cli.app.conf.broker_url = server.url
        cli.client.config_set("maxmemory", 1)
        lines = cli.said("check")
        cli.client.close()
    assert [line.split(":")[0] for line in lines[-3:]] == ["WRONG memory", "ok    clock", "WRONG workers"]
    assert lines[-1].startswith("WRONG workers: cannot be queried: ")
    assert cli.code == 1


def test_missing_or_wrong_password_is_reported(cli: Cli, tmp_path: Path) -> None:
    with start_server(tmp_path, extra=["--requirepass", "right"]) as server:
        for url, message in (
            (server.url, "the server requires a password"),
            (server.url.replace("127", ":wrong@127"), "the server rejects the password"),
        ):
            cli.app.conf.broker_url = url
            cli.app.lanes.__dict__.pop("store", None)  # a cached property
            [line] = cli.said("check")
            assert message in line
            assert "wrong@" not in line


@pytest.mark.parametrize(
    ("answers", "lines"),
    [
        ({"w1": {}}, [(True, "w1 holds 3 updates for 4 slots")]),
        (
            {"w1": {"scripts": "old"}},
            [
                (
                    False,
                    "w1 holds 3 updates for 4 slots, but has other scripts: restart it, or give its app another "
                    "database",
                ),
            ],
        ),
        (
            {"w1": {"queues": ["a"]}, "w2": {"queues": ["c"]}},
            [(True, "w1 holds"), (True, "w2 holds"), (False, "no worker reads b: start a worker for these queues")],
        ),
    ],
)
def test_workers_are_listed_with_their_faults(answers: dict[str, Any], lines: list[tuple[bool, str]]) -> None:
    right = {"scripts": "new", "queues": ["a", "b", "c"], "holding": 3, "slots": 4}
    found = [
        *generic.of_worker_answers(
            {name: {**right, **each} for name, each in answers.items()}, "new", ["a", "b", "c"], WORDS
        )
    ]
    assert len(found) == len(lines)
    for finding, (is_right, begin) in zip(found, lines, strict=True):
        assert finding.is_right is is_right
        assert finding.sentence.startswith(begin)


def test_workers_with_the_same_name_are_both_listed() -> None:
    # Given two workers on one machine, started without -n
    replies = [{"w@vm": {"holder": f"vm:{pid}:35d7049a", "queues": [queue]}} for pid, queue in ((7, "a"), (8, "b"))]
    # Then both are listed
    by_worker = generic.answers_by_worker([*replies, {"other@vm": {}}])
    assert {name: answer.get("queues") for name, answer in by_worker.items()} == {
        "w@vm (vm:7)": ["a"],
        "w@vm (vm:8)": ["b"],
        "other@vm": None,
    }
    # And the shared name is reported, but not as wrong
    [namesakes] = generic.namesakes([*replies, {"other@vm": {}}])
    assert namesakes.is_right is None
    assert namesakes.sentence.startswith("2 workers are named w@vm")


def test_worker_without_lanes_is_wrong() -> None:
    [finding, _] = generic.of_worker_answers({"w1": {"error": "Unknown command lanes"}}, "new", ["a"], WORDS)
    assert (finding.is_right, finding.sentence) == (False, "w1 does not support lanes: Unknown command lanes")


def test_misspelled_settings_are_hints(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("COLLECTS=1\nnot a line\n")
    lines = cli.said("check")
    assert "-     settings: .env, line 2 is ignored: it is not NAME=value" in lines
    assert "-     settings: COLLECTS is not a setting; did you mean COLLECT?" in lines


def test_source_of_updates_is_reported(cli: Cli, simulator: Simulator) -> None:
    lanes, bot = BotContext(cli.app), bot_at(simulator.url)
    simulator.push({"message": {}})
    # No poller
    found = check.of_intake(lanes, bot)
    assert found == (False, "intake", "no poller leads and no webhook is set: 1 updates wait at Telegram")
    # A leading poller
    lead(cli.client, 5_000)
    assert check.of_intake(lanes, bot) == (True, "intake", "east:99 polls, 1 updates wait at Telegram")
    # A poller whose lease is over
    lead(cli.client, -1)
    assert not check.of_intake(lanes, bot).is_right


def test_webhook_and_poller_together_are_reported(cli: Cli, simulator: Simulator) -> None:
    lanes, bot = BotContext(cli.app), bot_at(simulator.url)
    with closing(check.BotApi(bot.bot_api_url, bot.token)) as api:
        api.call("setWebhook", url="https://bot.example.org/hook")
    found = check.of_intake(lanes, bot)
    assert (found.is_right, found.sentence) == (
        True,
        "webhook at https://bot.example.org/hook, 0 updates wait at Telegram",
    )
    lead(cli.client, 5_000)
    assert check.of_intake(lanes, bot).sentence.startswith(
        "east:99 polls, but gets no updates, because a webhook is set"
    )


def test_refused_token_is_reported_but_not_shown(cli: Cli, simulator: Simulator) -> None:
    found = check.of_intake(BotContext(cli.app), bot_at(simulator.url, "123456:SECRET-and_WRONG"))
    assert not found.is_right
    assert "Unauthorized" in found.sentence
    assert "SECRET" not in found.sentence


def test_bot_without_a_token_is_not_checked(cli: Cli) -> None:
    found = check.of_intake(BotContext(cli.app), load({}, env_file=None))
    assert (found.is_right, found.sentence) == (None, "cannot be checked without the bot's token")


KEY = new_key()
HANDLER = "tests.support.bots:handle"


@pytest.fixture
def many_bots() -> Iterator[ManyBots]:
    server = ManyBots()
    yield server
    server.stop()


class AddedBots:
    """A deployment of added bots, and the findings about them."""

    def __init__(self, cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str, redis_url: str, **more: str) -> None:
        given = {"BOTS_KEY": KEY, "BOT_API_URL": url, "REDIS_URL": redis_url, **more}
        self.registry = Registry(cli.client, load(given, env_file=None))
        self._lanes = BotContext(cli.app)
        monkeypatch.setattr(BotContext, "settings", lambda _: load(given, env_file=None))

    def add(self, bot_id: int, handler: str = HANDLER, registry: Registry | None = None) -> None:
        sealed = (registry or self.registry).seals.seal(f"{bot_id}:SECRET-of_{bot_id}")
        self.registry.put(bot_id, BotRecord(sealed, handler, f"bot{bot_id}", 1))

    def found(self) -> list[tuple[bool | None, str, str]]:
        return [tuple(each) for each in check.of_added_bots(self._lanes)]  # type: ignore[misc]


def test_added_bots_that_are_not_served_are_reported(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, many_bots: ManyBots, redis_url: str
) -> None:
    # Given added bots that a poller polls
    bots = AddedBots(cli, monkeypatch, many_bots.start(), redis_url)
    until_ms = inspection.now_us(cli.client) // 1000 + 60_000
    cli.client.hset("poller:added:leader", mapping={"fence": 1, "holder": "east:99", "until_ms": until_ms})
    bots.add(7001)
    bots.add(7002)
    assert bots.found() == [(True, "added bots", "2 were added; east:99 polls")]
    # When the token of one is revoked, another one has no handler, and a third one's token was sealed with another key
    many_bots.revoked.add("7002:SECRET-of_7002")
    bots.add(7003, "no_such:handle")
    bots.add(7004, registry=Registry(cli.client, load({"BOTS_KEY": new_key()}, env_file=None)))
    # Then a line names each of them
    right, *wrong = bots.found()
    assert right == (True, "added bots", "4 were added; east:99 polls")
    assert [(is_right, what) for is_right, what, _ in wrong] == [
        (False, "added bot 7004"),
        (False, "added bot 7002"),
        (False, "added bot 7003"),
    ]
    other_key, revoked, no_handler = (sentence for _, _, sentence in wrong)
    assert "was sealed with another key" in other_key
    assert "getWebhookInfo failed" in revoked
    assert "Unauthorized" in revoked
    assert "there is no module no_such" in no_handler
    assert "SECRET" not in other_key + revoked + no_handler


def test_telegram_is_asked_about_some_of_many_added_bots(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, many_bots: ManyBots, redis_url: str
) -> None:
    # Given more added bots than are asked about, of which the last one is revoked
    bots = AddedBots(cli, monkeypatch, many_bots.start(), redis_url, WEBHOOK_URL="https://bot.example.org/hook")
    for bot_id in range(7001, 7002 + check.MOST_ASKED):
        bots.add(bot_id)
        many_bots.bots[bot_id].webhook = {"url": f"https://bot.example.org/hook/{bot_id}"}
    # Then the line says so
    assert bots.found() == [(True, "added bots", "21 were added; webhooks; Telegram was asked about 20")]
    # And a bot without its webhook is named
    many_bots.bots[7005].webhook = {}
    assert bots.found()[1:] == [
        (False, "added bot 7005", "no poller leads and no webhook is set: 0 updates wait at Telegram")
    ]


def test_leader_key_is_the_pollers() -> None:
    assert check.LEADER == LEADER


def test_digest_covers_the_scripts_of_lanes() -> None:
    assert digest() == digest("celery_lanes.protocol") != digest("chatlanes.poller")
