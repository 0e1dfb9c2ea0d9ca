"""SIGTERM and SIGINT end the poller at any moment, with exit code 0 and nothing lost."""

import signal

import pytest

from chatlanes.sandbox.server import Server
from chatlanes.sandbox.simulator import Simulator
from tests.poller.conftest import StartPoller
from tests.poller.lanes import lane, writes_held_up
from tests.support.bot_api import message
from tests.support.waiting import until

#: What G8 promises is 2 s; a loaded machine may take longer, and a poll would take 50.
SOON_S = 10.0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_in_the_middle_of_a_long_poll(simulator: Simulator, start_poller: StartPoller, how: signal.Signals) -> None:
    poller = start_poller()
    until(lambda: simulator.stats()["polls"])
    assert poller.stop(how) < SOON_S
    assert poller.lines[-1].endswith("stopped")
    assert not poller.told("Traceback")


def test_in_a_long_poll_after_a_batch_that_batch_is_confirmed(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    pushed = simulator.push(message())
    poller = start_poller()
    until(lambda: simulator.stats()["polls"] >= 2)
    assert poller.stop() < SOON_S
    assert simulator.stats()["confirmed"] == 1
    assert lane(redis_url) == pushed


def test_an_appended_batch_is_confirmed(simulator: Simulator, start_poller: StartPoller) -> None:
    # Given a poller that waits for room, its last batch unconfirmed, and updates that wait at Telegram
    simulator.push(*(message() for _ in range(150)))
    poller = start_poller(MAX_PENDING=99)
    poller.tells("fetching stops")
    assert simulator.stats()["confirmed"] == 0
    # When it is stopped
    assert poller.stop() < SOON_S
    # Then what it has appended is confirmed, and nothing else
    assert simulator.stats()["confirmed"] == 99


def test_a_batch_in_hand_is_appended_and_confirmed(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    # Given a poller whose append waits for a slow Redis
    poller = start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    with writes_held_up(own_redis) as append_waits:
        pushed = simulator.push(message())
        until(append_waits)
        # When it is asked to stop, and Redis answers after all
        poller.signal(signal.SIGTERM)
    # Then the batch is appended and confirmed
    assert poller.exit_code() == 0
    assert lane(own_redis.url) == pushed
    assert simulator.stats()["confirmed"] == 1


def test_with_redis_away_the_batch_in_hand_stays_at_telegram(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    poller = start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    own_redis.kill()
    simulator.push(message())
    poller.tells("Redis: ")
    assert poller.stop() < SOON_S
    assert simulator.stats()["confirmed"] == 0


def test_with_a_hanging_redis_the_batch_stays_at_telegram(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    poller = start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    with writes_held_up(own_redis) as append_waits:
        simulator.push(message())
        until(append_waits)
        assert poller.stop() < SOON_S
    assert simulator.stats()["confirmed"] == 0


def test_with_redis_away_from_the_start(start_poller: StartPoller) -> None:
    poller = start_poller(REDIS_URL="redis://127.0.0.1:1/0")
    poller.tells("Redis: ")
    assert poller.stop() < SOON_S


def test_while_telegram_hangs(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getUpdates", hang_s=60.0)
    poller = start_poller()
    until(lambda: simulator.stats()["calls"].get("getUpdates"))
    assert poller.stop() < SOON_S


def test_while_telegram_is_flooded(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getUpdates", status=429, retry_after=600)
    poller = start_poller()
    poller.tells("next in 600.0 s")
    assert poller.stop() < SOON_S


def test_under_load_the_next_poller_goes_on_without_a_gap(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given a poller in the middle of many updates
    pushed = simulator.push(*(message() for _ in range(5_000)))
    poller = start_poller()
    until(lambda: simulator.stats()["confirmed"] >= 1_000)
    # When it is stopped
    poller.stop()
    # Then exactly what it has appended is confirmed
    held = len(lane(redis_url))
    assert simulator.stats()["confirmed"] == held
    # And the next one brings the rest
    following = start_poller()
    until(lambda: simulator.stats()["confirmed"] == 5_000)
    assert lane(redis_url) == pushed
    following.stop()
    assert following.told(f"{5_000 - held} added, 0 seen before")
