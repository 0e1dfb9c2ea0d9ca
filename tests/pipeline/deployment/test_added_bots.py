"""Bots that are added and removed while a real poller, receiver and workers run (BOTS_KEY)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import chatlanes.bots
from bench.load.many_bots import ManyBots
from celery_lanes.embedded_server import free_port
from celery_lanes.protocol import Store
from chatlanes.broadcasts import Call, Feeder
from chatlanes.settings import load, secret_from
from chatlanes.settings.bots import AddedBot
from chatlanes.updates.added_bots import ADDED, CHANGES, Registry, new_key
from tests.pipeline.conftest import MakePipeline
from tests.support.outside import IMPORTED, outside
from tests.support.pipeline import Pipeline, message
from tests.support.process import Process
from tests.support.waiting import until

KEY, OTHER_KEY = new_key(), new_key()
ONE, TWO = "7001:SECRET-of_one", "7002:SECRET-of_two"


@pytest.fixture
def telegram() -> Iterator[ManyBots]:
    server = ManyBots()
    yield server
    server.stop()


class Deployment:
    """A pipeline without a bot of its own, and the command that adds and removes bots."""

    def __init__(self, pipeline: Pipeline, telegram: ManyBots) -> None:
        self.pipeline = pipeline
        self.telegram = telegram
        self._runs = 0

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.pipeline.settings.items()}

    def add(self, token: str, bot: str | None = None) -> chatlanes.bots.Added:
        return chatlanes.bots.add(token, bot, settings=load(self.environment, None))

    def remove(self, bot_id: int, *, drop: bool = False) -> bool:
        return chatlanes.bots.remove(bot_id, drop=drop, settings=load(self.environment, None))

    def answers(self, bot_id: int) -> list[str]:
        return [each["text"] for each in self.telegram.bots[bot_id].sent]

    def is_polled(self, bot_id: int) -> bool:
        return self.telegram.bots[bot_id].polling > 0


@pytest.fixture
def deployment(make_pipeline: MakePipeline, telegram: ManyBots) -> Deployment:
    pipeline = make_pipeline(BOT_TOKEN="", BOTS_KEY=KEY, BOT_API_URL=telegram.start())
    return Deployment(pipeline, telegram)


def test_an_added_bot_is_polled_and_run_without_a_restart(deployment: Deployment) -> None:
    # Given a poller and a worker that serve no bot
    poller, worker = deployment.pipeline.poller(), deployment.pipeline.worker()
    # When a bot is added, and another one with a handler of its own
    deployment.add(ONE)
    deployment.add(TWO, "tests.support.bots:bot")
    until(lambda: deployment.is_polled(7001) and deployment.is_polled(7002))
    deployment.telegram.push(7001, message(1, 5), message(2, 5))
    deployment.telegram.push(7002, message(3, 5))
    # Then each of them answers, in order
    until(lambda: deployment.answers(7001) == ["#1", "#2"] and deployment.answers(7002) == ["#3"])
    # And when one is removed, it is polled no more, and the other one is
    deployment.remove(7001)
    poller.tells("polling 1 added bots")
    deployment.telegram.push(7001, message(4, 5))  # ends the long poll in progress, whose outcome is discarded
    until(lambda: not deployment.is_polled(7001))
    deployment.telegram.push(7002, message(5, 5))
    until(lambda: deployment.answers(7002) == ["#3", "#5"])
    polls = deployment.telegram.bots[7001].polls
    deployment.telegram.push(7002, message(6, 5))
    until(lambda: deployment.answers(7002) == ["#3", "#5", "#6"])
    assert deployment.telegram.bots[7001].polls == polls
    assert deployment.answers(7001) == ["#1", "#2"]
    until(lambda: deployment.pipeline.pending() == 0)
    assert deployment.pipeline.count("settled") == 5
    # And no log has a token
    assert "SECRET" not in worker.log + poller.log


def test_a_bot_that_is_added_again_keeps_its_long_poll(deployment: Deployment) -> None:
    # Given a bot in its long poll
    deployment.add(ONE)
    poller = deployment.pipeline.poller()
    until(lambda: deployment.is_polled(7001))
    # When it is added again, with the same token and another handler
    deployment.add(ONE, "tests.support.bots:bot")
    poller.tells("polling 1 added bots, 0 of them since the last change")
    # Then the same poll brings its next update
    assert deployment.telegram.bots[7001].polls == 1
    deployment.telegram.push(7001, message(1, 5))
    until(lambda: deployment.pipeline.pending() == 1)
    # And with another token it is polled anew
    deployment.add("7001:SECRET-of_one_new")
    poller.tells("polling 1 added bots, 1 of them since the last change")
    until(lambda: deployment.telegram.bots[7001].token == "7001:SECRET-of_one_new")


def test_what_waits_for_a_removed_bot_runs_when_it_is_added_again(deployment: Deployment) -> None:
    # Given updates of a bot that wait because no worker runs
    deployment.add(ONE)
    deployment.pipeline.poller()
    deployment.telegram.push(7001, message(1, 5), message(2, 5), message(3, 6))
    until(lambda: deployment.pipeline.pending() == 3)
    # When it is removed, and a worker starts
    deployment.remove(7001)
    worker = deployment.pipeline.worker()
    worker.tells("belongs to a bot whose token this worker does not have")
    assert deployment.pipeline.pending() == 3
    assert deployment.answers(7001) == []
    # And when it is added again, with another token
    deployment.telegram.revoked.add(ONE)
    deployment.add("7001:SECRET-of_one_new")
    # Then they run, in order
    until(lambda: deployment.pipeline.pending() == 0, 120)
    assert sorted(deployment.answers(7001)) == ["#1", "#2", "#3"]
    assert [each for each in deployment.answers(7001) if each != "#3"] == ["#1", "#2"]


def test_drop_settles_what_waits_unrun(deployment: Deployment) -> None:
    # Given updates that wait, of two bots
    deployment.add(ONE)
    deployment.add(TWO)
    deployment.pipeline.poller()
    deployment.telegram.push(7001, message(1, 5), message(2, 5), message(3, 6))
    deployment.telegram.push(7002, message(4, 5))
    until(lambda: deployment.pipeline.pending() == 4)
    # When one bot is removed with them, and a worker starts
    deployment.remove(7001, drop=True)
    worker = deployment.pipeline.worker()
    # Then they are settled unrun, and the other bot's is run
    until(lambda: deployment.pipeline.pending() == 0)
    assert deployment.answers(7002) == ["#4"]
    assert deployment.answers(7001) == []
    until(lambda: worker.log.count("not run: its bot was removed, with its waiting updates") == 3)
    assert deployment.pipeline.leftovers() == []
    # And the bot is not listed, but can be added again
    assert [each.id for each in chatlanes.bots.list(settings=load(deployment.environment, None))] == [7002]
    deployment.add(ONE)
    until(lambda: deployment.is_polled(7001))


def test_drop_cancels_the_broadcasts_of_the_bot(deployment: Deployment) -> None:
    # Given a broadcast that runs, and a paused one
    deployment.add(ONE)
    deployment.pipeline.worker("threads", 4)
    feeder = Feeder(Store(deployment.pipeline.redis), AddedBot.of(load(deployment.environment, None), ONE, ""))
    for id_ in ("runs", "waits"):
        feeder.broadcasts.store(id_, Call("sendMessage", {"text": "hi"}), range(1, 201), 20)
    feeder.broadcasts.set_state("waits", "paused", only_from=("stored",))
    feeder.broadcasts.enlist("waits")
    feeder.start("runs")
    until(lambda: feeder.broadcasts.progress("runs").done >= 10)
    # When the bot is removed with its updates
    deployment.remove(7001, drop=True)
    # Then both end, and their recipients are counted
    until(lambda: all(each.ended_ms for each in feeder.broadcasts.all()))
    found = {each.id: each for each in feeder.broadcasts.all()}
    assert {each.state for each in found.values()} == {"cancelled"}
    assert found["runs"].counts["sent"] == len(deployment.answers(7001))
    assert found["runs"].counts["sent"] + found["runs"].counts["dropped"] == 200
    assert found["waits"].counts == {"dropped": 200}
    # And nothing is left of them, also after the bot is added again
    deployment.add(ONE)
    until(lambda: deployment.pipeline.pending() == 0 and feeder.resume("runs") is False)
    assert found["runs"].counts["sent"] == len(deployment.answers(7001))


def test_a_feeder_cancels_the_broadcast_of_a_removed_bot(deployment: Deployment) -> None:
    # Given a broadcast of a bot, and a command that died after it had removed the bot
    deployment.add(ONE)
    settings = load(deployment.environment, None)
    feeder = Feeder(Store(deployment.pipeline.redis), AddedBot.of(settings, ONE, ""))
    feeder.broadcasts.store("b1", Call("sendMessage", {"text": "hi"}), range(1, 201), 20)
    feeder.start("b1")
    with closing(Registry.connect(settings)) as registry:
        registry.remove(7001, drop=True)
    # When a worker starts
    deployment.pipeline.worker("threads", 4)
    # Then the broadcast ends
    until(lambda: feeder.broadcasts.progress("b1").ended_ms > 0)
    assert feeder.broadcasts.progress("b1").state == "cancelled"
    assert feeder.broadcasts.progress("b1").counts == {"dropped": 200}


@pytest.mark.first_only
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_nothing_is_lost_when_poller_and_worker_are_killed(deployment: Deployment, pool: str) -> None:
    # Given a poller and a worker of an added bot
    deployment.add(ONE)
    poller, worker = deployment.pipeline.poller(), deployment.pipeline.worker(pool, 2)
    deployment.telegram.push(7001, *(message(n, n % 7) for n in range(1, 201)))
    deployment.pipeline.some_ended(20)
    # When both are killed, and others start
    poller.kill_all()
    worker.kill_all()
    deployment.telegram.push(7001, *(message(n, n % 7) for n in range(201, 301)))
    deployment.pipeline.poller()
    deployment.pipeline.worker(pool, 2)
    # Then each update has its answer, in the order of its chat
    until(lambda: len(set(deployment.answers(7001))) == 300)
    until(lambda: deployment.pipeline.pending() == 0)
    for chat in range(7):
        first = dict.fromkeys(each["text"] for each in deployment.telegram.bots[7001].sent if each["chat_id"] == chat)
        numbers = [int(text[1:]) for text in first]
        assert numbers == sorted(numbers)


def test_a_standby_poller_takes_over_all_added_bots(deployment: Deployment) -> None:
    deployment.add(ONE)
    first = deployment.pipeline.poller()
    until(lambda: deployment.is_polled(7001))
    second = deployment.pipeline.poller()
    second.tells("standing by")
    # When the leader is killed
    first.kill_all()
    # Then the other one polls, also a bot that is added then
    deployment.add(TWO)
    deployment.telegram.push(7001, message(1, 5))
    deployment.telegram.push(7002, message(2, 5))
    until(lambda: deployment.pipeline.pending() == 2)
    # And ends within the time of every poller
    second.stop()


def test_a_refused_token_stops_only_its_bot_until_it_is_added_again(deployment: Deployment) -> None:
    deployment.add(ONE)
    deployment.add(TWO)
    poller = deployment.pipeline.poller()
    until(lambda: deployment.is_polled(7001) and deployment.is_polled(7002))
    deployment.telegram.revoked.add(ONE)
    deployment.telegram.push(7001, message(1, 5))
    poller.tells("This bot is not polled until it is added again; the others are.")
    deployment.telegram.push(7002, message(2, 5))
    until(lambda: deployment.pipeline.pending() >= 1)
    # When Telegram has given it another token
    deployment.add("7001:SECRET-of_one_new")
    # Then it is polled with that one
    until(lambda: deployment.is_polled(7001))
    assert deployment.telegram.bots[7001].token == "7001:SECRET-of_one_new"
    assert "SECRET" not in poller.log


def test_a_handler_that_cannot_be_imported_by_a_worker_keeps_its_updates(deployment: Deployment) -> None:
    # Given a bot whose handler the worker does not have, as in the middle of a deploy
    module = deployment.pipeline.directory / "tenants.py"
    module.write_text("from tests.support.bots import handle")
    sys.path.insert(0, str(module.parent))
    try:
        deployment.add(ONE, "tenants:handle")
    finally:
        sys.path.remove(str(module.parent))
    module.unlink()
    deployment.pipeline.poller()
    worker = deployment.pipeline.worker()
    deployment.telegram.push(7001, message(1, 5))
    # Then the update waits, and the worker continues
    worker.tells("waits for its bot: added bot 7001: bot=tenants:handle: there is no module tenants")
    deployment.add(TWO)
    deployment.telegram.push(7002, message(2, 5))
    until(lambda: deployment.answers(7002) == ["#2"])
    until(lambda: deployment.pipeline.pending() == 1)


# -- webhooks


def test_a_receiver_has_a_hook_for_an_added_bot(deployment: Deployment) -> None:
    port = free_port()
    deployment.pipeline.settings["WEBHOOK_URL"] = "https://bot.example.org/hook"
    deployment.pipeline.receiver(port)
    deployment.pipeline.worker()
    assert _posted(port, 7001, ONE, 1) == 404
    # When a bot is added
    deployment.add(ONE)
    # Then Telegram has its webhook, and the receiver its hook
    hook = deployment.telegram.bots[7001].webhook
    assert (hook["url"], hook["secret_token"]) == ("https://bot.example.org/hook/7001", secret_from(ONE))
    until(lambda: _posted(port, 7001, ONE, 1) == 200)
    assert _posted(port, 7001, TWO, 2) == 403
    until(lambda: deployment.answers(7001) == ["#1"])
    # And when it is removed, neither has it any more
    deployment.remove(7001)
    assert deployment.telegram.bots[7001].webhook == {}
    until(lambda: _posted(port, 7001, ONE, 3) == 404)


def test_a_poller_leaves_added_bots_to_their_webhooks(deployment: Deployment) -> None:
    # Given a bot with a webhook
    deployment.pipeline.settings |= {"WEBHOOK_URL": "https://bot.example.org/hook", "BOT_TOKEN": TWO}
    deployment.add(ONE)
    # When a poller runs beside the receivers
    poller = deployment.pipeline.poller()
    # Then it polls the bot of BOT_TOKEN only, and says so
    poller.tells("added bots have webhooks, because WEBHOOK_URL is set: they are not polled")
    until(lambda: deployment.is_polled(7002))
    assert deployment.telegram.bots[7001].polls == 0


def test_a_webhook_that_may_still_be_set_is_named(deployment: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    deployment.pipeline.settings["WEBHOOK_URL"] = "https://bot.example.org/hook"
    deployment.add(ONE)
    deployment.pipeline.settings["BOT_API_URL"] = "http://127.0.0.1:1"
    deployment.remove(7001)
    assert "the webhook of bot 7001 may still be set, because no answer (Connection refused): call " in caplog.text


def _posted(port: int, bot_id: int, token: str, number: int) -> int:
    update = {"update_id": number, **message(number, 5)}
    headers = {"Content-Type": "application/json", "X-Telegram-Bot-Api-Secret-Token": secret_from(token)}
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}/hook/{bot_id}", json.dumps(update).encode(), headers)) as done:
            return int(done.status)
    except HTTPError as refused:
        return refused.code


# -- the command


def command(deployment: Deployment, *arguments: str, token: str = "", **settings: str) -> Process:
    return chatlanes_command(deployment, "lanes", "bots", *arguments, given=token, **settings)


def chatlanes_command(deployment: Deployment, *arguments: str, given: str = "", **settings: str) -> Process:
    deployment._runs += 1
    name, words = f"command{deployment._runs}", [sys.executable, "-m", "chatlanes", *arguments]
    environment, folder = {**deployment.environment, **settings}, deployment.pipeline.directory
    made = Process(name, words, folder, environment, inherited=outside(), imported=IMPORTED, given=given)
    deployment.pipeline._processes.append(made)
    return made


def test_the_command_adds_lists_and_removes(deployment: Deployment) -> None:
    added = command(deployment, "add", "--bot", "tests.support.bots:handle", token=ONE + "\n")
    assert added.exit_code() == 0, added.log
    assert added.log.strip() == "added bot 7001 (@bot7001), handled by tests.support.bots:handle"
    listed = command(deployment, "list", "--json")
    assert listed.exit_code() == 0
    [row] = map(json.loads, listed.log.splitlines())
    assert (row["id"], row["username"], row["bot"]) == (7001, "bot7001", "tests.support.bots:handle")
    assert "SECRET" not in added.log + listed.log
    # And Redis has the token only sealed
    stored = b"".join(deployment.pipeline.redis.hgetall(ADDED).values())
    assert b"7001:" not in stored
    assert b"SECRET" not in stored
    # And the key can be replaced
    rotated = command(deployment, "rotate", BOTS_KEY=f"{OTHER_KEY},{KEY}")
    assert rotated.exit_code() == 0
    assert rotated.log.strip() == "sealed 1 tokens with the first key of BOTS_KEY"
    with_old = command(deployment, "rotate")
    assert with_old.exit_code() == 1
    assert "was sealed with another key: write that key into BOTS_KEY too" in with_old.log
    removed = command(deployment, "remove", "7001")
    assert removed.exit_code() == 0, removed.log
    again = command(deployment, "remove", "7001")
    assert again.exit_code() == 1
    assert "there is no added bot 7001" in again.log


def test_settings_that_are_missing_end_each_process(deployment: Deployment, make_pipeline: MakePipeline) -> None:
    without = command(deployment, "list", BOTS_KEY="", BOT_TOKEN=ONE)
    assert without.exit_code() == 1
    assert "BOTS_KEY is not set: write the key that `chatlanes lanes bots key` prints" in without.log
    wrong = command(deployment, "list", BOTS_KEY="short")
    assert wrong.exit_code() == 2
    assert "BOTS_KEY is wrong (its value is secret and not shown)" in wrong.log


@pytest.mark.parametrize(
    ("token", "bot", "sentence"),
    [
        ("nonsense", None, "the token (its value is secret and not shown) is not <digits>:<letters>"),
        ("7001:WRONG", None, "Telegram refuses the token of bot 7001: take the current one from @BotFather"),
        (ONE, "no_such:handle", "bot=no_such:handle: there is no module no_such"),
        (ONE, "tests.support.bots:no_such", "has no no_such"),
        (ONE, "no such", "bot=no such: allowed is module:attribute"),
        (ONE, "mybot.py", "bot=mybot.py: a script polls with a token of its own. Name a handler without a token"),
        (ONE, "tests.support.framework_bots:telebot", "it was created with another token than that of this bot"),
        (ONE, "tests.support.framework_bots:with_hooks", "it was created with another token than that of this bot"),
        (ONE, "tests.support.framework_bots:application", "it was created with another token than that of this bot"),
        (ONE, "tests.support.framework_bots:pair", "it was created with another token than that of this bot"),
    ],
)
def test_add_says_what_is_wrong(deployment: Deployment, token: str, bot: str | None, sentence: str) -> None:
    with pytest.raises(chatlanes.bots.AddError) as raised:
        deployment.add(token, bot)
    assert sentence in str(raised.value)
    assert token not in str(raised.value)
    assert deployment.pipeline.redis.exists(ADDED, CHANGES) == 0


@pytest.mark.parametrize(
    ("token", "bot"),
    [
        (ONE, "tests.support.framework_bots:dispatcher"),
        (ONE, "tests.support.framework_bots:make_dispatcher"),
        ("123456:SECRET-of_the_frameworks_bots", "tests.support.framework_bots:telebot"),
    ],
)
def test_handlers_of_frameworks_that_can_serve_the_bot_are_added(deployment: Deployment, token: str, bot: str) -> None:
    assert deployment.add(token, bot).bot == bot


def test_a_bot_that_is_served_already_is_refused(deployment: Deployment) -> None:
    deployment.pipeline.settings["BOT_TOKEN"] = ONE
    with pytest.raises(chatlanes.bots.AddError, match="bot 7001 is served already, by BOT_TOKEN or BOTS"):
        deployment.add(ONE)


def test_a_second_add_replaces_token_and_handler(deployment: Deployment) -> None:
    first: Any = deployment.add(ONE)
    assert (first.id, first.username, first.is_new) == (7001, "bot7001", True)
    assert deployment.add(ONE).is_new is False
    assert deployment.add(ONE, "tests.support.bots:bot").is_new is True
    assert [each.bot for each in chatlanes.bots.list(settings=load(deployment.environment, None))] == [
        "tests.support.bots:bot"
    ]


def test_the_commands_know_an_added_bot_by_its_id(deployment: Deployment) -> None:
    # Given an added bot beside another one
    deployment.add(ONE)
    deployment.add(TWO)
    deployment.pipeline.poller()
    deployment.pipeline.worker()
    until(lambda: deployment.is_polled(7001))
    # When a call, a broadcast and a file of updates are for the one
    sent = chatlanes_command(deployment, "lanes", "send", "5", "sendMessage", "--param", "text=call", "--bot", "7001")
    assert sent.exit_code() == 0, sent.log
    (deployment.pipeline.directory / "chats").write_text("5\n6\n")
    wanted = ["--to", "chats", "--method", "sendMessage", "--param", "text=to all"]
    begun = chatlanes_command(deployment, "lanes", "broadcast", "start", *wanted, "--bot", "7001")
    assert begun.exit_code() == 0, begun.log
    (deployment.pipeline.directory / "updates").write_text(json.dumps({"update_id": 9} | message(9, 5)) + "\n")
    replayed = chatlanes_command(deployment, "poller", "replay", "updates", "--bot", "7001")
    assert replayed.exit_code() == 0, replayed.log
    # Then it makes them, and the other none
    until(lambda: sorted(deployment.answers(7001)) == ["#9", "call", "to all", "to all"])
    assert deployment.answers(7002) == []
    # And the chat of the one can be paused and shown
    paused = chatlanes_command(deployment, "lanes", "pause", "chat", "5", "--bot", "7001")
    assert paused.exit_code() == 0
    assert paused.log.strip().startswith("paused 7001/chat:5")
    assert chatlanes_command(deployment, "lanes", "chat", "5", "--bot", "7001").exit_code() == 0
    unknown = chatlanes_command(
        deployment, "lanes", "send", "5", "sendMessage", "--param", "text=call", "--bot", "7003"
    )
    assert unknown.exit_code() == 1
    assert "name a bot with --bot: one of the file BOTS, or the id of an added one" in unknown.log
