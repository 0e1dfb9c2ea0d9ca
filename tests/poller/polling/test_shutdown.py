"""SIGTERM and SIGINT end the poller at any moment, with exit code 0 and without loss."""

import signal

import pytest

from celery_lanes.embedded_server import Server
from chatlanes_sandbox.simulator import Simulator
from tests.poller.conftest import StartPoller
from tests.poller.lanes import lane, writes_held_up
from tests.support.bot_api import message
from tests.support.waiting import until

#: The promise is 2 s; a loaded machine may take longer, and a poll would take 50.
SOON_S = 10.0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stop_during_a_long_poll(simulator: Simulator, start_poller: StartPoller, how: signal.Signals) -> None:
    poller = start_poller()
    until(lambda: simulator.stats()["polls"])
    assert poller.stop(how) < SOON_S
    assert poller.lines[-1].endswith("stopped")
    assert not poller.told("Traceback")


def test_stop_during_a_long_poll_confirms_the_batch_before(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    pushed = simulator.push(message())
    poller = start_poller()
    until(lambda: simulator.stats()["polls"] >= 2)
    assert poller.stop() < SOON_S
    assert simulator.stats()["confirmed"] == 1
    assert lane(redis_url) == pushed


def test_stop_confirms_an_appended_batch(simulator: Simulator, start_poller: StartPoller) -> None:
    # Given a poller at its backlog limit, its last batch unconfirmed, and more updates at Telegram
    simulator.push(*(message() for _ in range(150)))
    poller = start_poller(MAX_PENDING=99)
    poller.tells("fetching stops")
    assert simulator.stats()["confirmed"] == 0
    # When it is stopped
    assert poller.stop() < SOON_S
    # Then exactly the appended updates are confirmed
    assert simulator.stats()["confirmed"] == 99


def test_stop_appends_and_confirms_a_batch_in_flight(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    # Given a poller whose append waits for a slow Redis
    poller = start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    with writes_held_up(own_redis) as append_waits:
        pushed = simulator.push(message())
        until(append_waits)
        # When it is stopped, and Redis then answers
        poller.signal(signal.SIGTERM)
    # Then the batch is appended and confirmed
    assert poller.exit_code() == 0
    assert lane(own_redis.url) == pushed
    assert simulator.stats()["confirmed"] == 1


def test_stop_without_redis_leaves_the_batch_at_telegram(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    poller = start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    own_redis.kill()
    simulator.push(message())
    poller.tells("Redis: ")
    assert poller.stop() < SOON_S
    assert simulator.stats()["confirmed"] == 0


def test_stop_with_a_hanging_redis_leaves_the_batch_at_telegram(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    poller = start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    with writes_held_up(own_redis) as append_waits:
        simulator.push(message())
        until(append_waits)
        assert poller.stop() < SOON_S
    assert simulator.stats()["confirmed"] == 0


def test_stop_when_redis_was_never_reachable(start_poller: StartPoller) -> None:
    poller = start_poller(REDIS_URL="redis://127.0.0.1:1/0")
    poller.tells("Redis: ")
    assert poller.stop() < SOON_S


def test_stop_while_telegram_hangs(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getUpdates", hang_s=60.0)
    poller = start_poller()
    until(lambda: simulator.stats()["calls"].get("getUpdates"))
    assert poller.stop() < SOON_S


def test_stop_during_a_flood_wait(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.fault(method="getUpdates", status=429, retry_after=600)
    poller = start_poller()
    poller.tells("next attempt in 600.0 s")
    assert poller.stop() < SOON_S


def test_next_poller_continues_without_a_gap(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given a poller during a flood of updates
    pushed = simulator.push(*(message() for _ in range(5_000)))
    poller = start_poller()
    until(lambda: simulator.stats()["confirmed"] >= 1_000)
    # When it is stopped
    poller.stop()
    # Then exactly the appended updates are confirmed
    held = len(lane(redis_url))
    assert simulator.stats()["confirmed"] == held
    # And the next poller appends the rest
    following = start_poller()
    until(lambda: simulator.stats()["confirmed"] == 5_000)
    assert lane(redis_url) == pushed
    following.stop()
    assert following.told(f"{5_000 - held} added, 0 seen before")
