"""One poller process for several bots: they are separate, and a failing bot does not stop the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from celery_lanes.protocol import connect, keys
from chatlanes_sandbox.simulator import Simulator, start
from tests.poller.conftest import StartPoller
from tests.poller.process import RunningPoller
from tests.support.bot_api import BOT_ID, message
from tests.support.waiting import until

OTHER_ID = 7890
OTHER_TOKEN = f"{OTHER_ID}:SECRET-part-of_the-OTHER-TOKEN"


@pytest.fixture(scope="module")
def other_telegram() -> Iterator[Simulator]:
    with start(OTHER_TOKEN) as simulator:
        yield simulator


@pytest.fixture
def other(other_telegram: Simulator) -> Simulator:
    other_telegram.reset()
    return other_telegram


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


class StartBoth:
    """A poller for the bots `one`, at the simulator, and `other`, at another one; `more` is added to its table."""

    def __init__(self, directory: Path, other: Simulator, start_poller: StartPoller) -> None:
        self._file = directory / "bots.toml"
        self._other = other
        self._start = start_poller

    def __call__(self, more: str = "", **settings: object) -> RunningPoller:
        self._file.write_text(
            '[one]\ntoken_env = "BOT_TOKEN"\n'
            f'[other]\ntoken_env = "OTHER_TOKEN"\nbot_api_url = "{self._other.url}"\n{more}'
        )
        return self._start(BOTS=self._file, **{"OTHER_TOKEN": OTHER_TOKEN, **settings})


@pytest.fixture
def start_both(other: Simulator, start_poller: StartPoller, tmp_path: Path) -> StartBoth:
    return StartBoth(tmp_path, other, start_poller)


def lane(redis: Redis, bot_id: int, chat: int = 7) -> list[str]:
    return [each.decode() for each in redis.zrange(keys.lane(f"{bot_id}/chat:{chat}"), 0, -1)]


def test_bots_have_separate_lanes_and_queues(
    simulator: Simulator, other: Simulator, redis: Redis, start_both: StartBoth
) -> None:
    # Given the same update ids in the same chat of two bots
    ids = simulator.push(message(), message())
    assert other.push(message(), message()) == ids
    # When one poller serves both
    poller = start_both(more="queues = 1\n")
    until(lambda: simulator.stats()["confirmed"] == other.stats()["confirmed"] == 2)
    # Then each update is in its own bot's lane, and in its own bot's queue
    for bot_id, queue in ((BOT_ID, "updates.one."), (OTHER_ID, "updates.other.0")):
        assert lane(redis, bot_id) == [f"{bot_id}:{number}" for number in ids]
        first = redis.hget(keys.message(f"{bot_id}:{ids[0]}"), "queue")
        assert first is not None
        assert first.decode().startswith(queue)
    # And the poller leads for each bot separately, and logs the bot's name
    assert len(poller.told("poller [one]: leading")) == len(poller.told("poller [other]: leading")) == 1
    assert {f"poller:{BOT_ID}:leader", f"poller:{OTHER_ID}:leader"} <= {key.decode() for key in redis.keys("poller:*")}
    # And both resign when it is stopped
    poller.stop()
    assert not redis.keys("poller:*")


def test_refused_token_stops_no_other_bot(simulator: Simulator, redis: Redis, start_both: StartBoth) -> None:
    poller = start_both(OTHER_TOKEN=f"{OTHER_ID}:SECRET-part-of_the-WRONG-one")
    line = poller.tells("Telegram refused")
    assert "ERROR poller [other]: " in line
    assert line.endswith("This bot is not polled until the poller is restarted; the others are.")
    simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 1)
    poller.stop()
    assert "WRONG" not in json.dumps(poller.lines)


def test_poller_without_a_working_bot_ends(start_both: StartBoth) -> None:
    poller = start_both(OTHER_TOKEN=f"{OTHER_ID}:WRONG", BOT_TOKEN=f"{BOT_ID}:WRONG")
    assert poller.exit_code() == 1
    assert poller.lines[-1].endswith("no bot can be polled")
    assert len(poller.told("Telegram refused")) == 2


def test_outage_of_one_bot_delays_no_other(simulator: Simulator, other: Simulator, start_both: StartBoth) -> None:
    # Given a Bot API that fails during the whole test
    other.fault(method="getUpdates", status=502, times=10_000)
    poller = start_both()
    poller.tells("poller [other]: Telegram: 502")
    # When updates of another bot arrive
    ids = simulator.push(*(message() for _ in range(150)))
    # Then they are appended
    until(lambda: simulator.stats()["confirmed"] == len(ids))
    assert other.stats()["confirmed"] == 0


@pytest.mark.parametrize(
    ("more", "settings", "last"),
    [
        ("", {"OTHER_TOKEN": ""}, "bots.toml: [other] has no token: OTHER_TOKEN (token_env) is not set"),
        (
            'order_by = "chats"\n',
            {},
            "bots.toml: [other] order_by=chats: allowed is chat, chat+user, topic, user, bot, or",
        ),
        ('order_by = "no_such:keys"\n', {}, "ORDER_BY=no_such:keys: there is no module no_such"),
    ],
)
def test_invalid_table_is_reported_before_polling(
    simulator: Simulator, start_both: StartBoth, more: str, settings: dict[str, object], last: str
) -> None:
    simulator.push(message())
    poller = start_both(more, **settings)
    assert poller.exit_code() == 2
    assert last in poller.lines[-1]
    # The simulator's count is not used: a poll of a poller that an earlier test killed may still arrive
    assert not poller.told("bot @")


def test_full_backlog_of_one_bot_stops_no_other(
    simulator: Simulator, other: Simulator, redis: Redis, start_both: StartBoth
) -> None:
    # Given a bot whose backlog is at its limit, because no worker runs
    other.push(*(message() for _ in range(500)))
    poller = start_both(more="max_pending = 50\n")
    poller.tells("poller [other]: backlog 50, MAX_PENDING 50: fetching stops")
    # When more updates than that limit arrive for another bot
    ids = simulator.push(*(message() for _ in range(150)))
    # Then all of them are fetched
    until(lambda: simulator.stats()["confirmed"] == len(ids))
    assert len(lane(redis, BOT_ID)) == 150
    # And the rest of the first bot's updates stay at Telegram
    assert len(lane(redis, OTHER_ID)) == 50


def test_standby_takes_over_all_bots(
    simulator: Simulator, other: Simulator, redis: Redis, start_both: StartBoth
) -> None:
    # Given two pollers of the same bots
    first = start_both()
    for name in ("one", "other"):
        first.tells(f"poller [{name}]: leading")
    second = start_both()
    for name in ("one", "other"):
        second.tells(f"poller [{name}]: standing by")
    # When the leader dies
    first.kill()
    # Then the other one leads for each bot, and misses nothing
    for name in ("one", "other"):
        second.tells(f"poller [{name}]: leading")
    simulator.push(message())
    other.push(message())
    until(lambda: simulator.stats()["confirmed"] == other.stats()["confirmed"] == 1)
    assert len(lane(redis, BOT_ID)) == len(lane(redis, OTHER_ID)) == 1
