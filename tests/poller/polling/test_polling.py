"""`chatlanes poller` with the simulator and a real Redis: updates reach their lanes, and are confirmed after that."""

import time

from celery_lanes.embedded_server import Server, start_server
from chatlanes.poller.telegram_source import SAME_OFFSET_EVERY_S
from chatlanes_sandbox.simulator import Simulator, start
from tests.poller.conftest import StartPoller
from tests.poller.lanes import buried, drain, lane, writes_held_up
from tests.support.bot_api import TOKEN, message
from tests.support.waiting import until


def confirmed(simulator: Simulator) -> int:
    return int(simulator.stats()["confirmed"])


def test_updates_reach_their_lanes_in_order(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given updates of two chats, more than one batch
    pushed = simulator.push(*(message(chat=7 + n % 2) for n in range(250)))
    # When a poller runs
    poller = start_poller()
    # Then all updates are in the lanes and confirmed
    until(lambda: confirmed(simulator) == 250)
    assert lane(redis_url, 7) == pushed[0::2]
    assert lane(redis_url, 8) == pushed[1::2]
    poller.stop()
    assert poller.told("250 updates so far: 250 added")


def test_start_logs_the_bot_and_the_durability(start_poller: StartPoller) -> None:
    poller = start_poller(ALLOWED_UPDATES="message,poll", POLL_TIMEOUT=7)
    line = poller.tells("@simulated_bot")
    assert "ALLOWED_UPDATES=message,poll POLL_TIMEOUT=7" in line
    assert " INFO " in poller.tells("Redis is durable: every write is on disk before it answers")


def test_redis_that_may_lose_updates_is_a_warning(start_poller: StartPoller, unsafe_redis: Server) -> None:
    poller = start_poller(REDIS_URL=unsafe_redis.url)
    assert " WARNING " in poller.tells("LOST")


def test_nothing_is_confirmed_while_an_append_hangs(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    # Given a poller whose append waits for Redis
    start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    with writes_held_up(own_redis) as append_waits:
        pushed = simulator.push(message(), message())
        until(append_waits)
        # Then the batch is not confirmed
        assert confirmed(simulator) == 0
    # Until Redis has it
    until(lambda: confirmed(simulator) == 2)
    assert lane(own_redis.url) == pushed


def test_batch_is_appended_once_after_a_kill_before_confirmation(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given a poller that has appended all updates and not yet confirmed the last, because the backlog is at its limit
    pushed = simulator.push(*(message() for _ in range(5)))
    poller = start_poller(MAX_PENDING=5)
    poller.tells("fetching stops")
    assert lane(redis_url) == pushed
    left = 5 - confirmed(simulator)
    assert left > 0
    # When it is killed and another one is started
    poller.kill()
    following = start_poller()
    # Then they are confirmed, and in their lane once
    until(lambda: confirmed(simulator) == 5)
    assert lane(redis_url) == pushed
    following.stop()
    assert following.told(f"{left} updates so far: 0 added, {left} seen before")


def test_kill_before_the_append_loses_nothing(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    # Given a poller with a batch in flight that Redis does not accept
    poller = start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    own_redis.kill()
    pushed = simulator.push(message(), message())
    poller.tells("Redis: ")
    # When it is killed
    poller.kill()
    # Then the next poller gets the batch, when Redis is back
    with start_server(own_redis.log.parent, port=own_redis.port):
        start_poller(REDIS_URL=own_redis.url)
        until(lambda: confirmed(simulator) == 2)
        assert lane(own_redis.url) == pushed


def test_fetching_stops_at_max_pending(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given more updates than the limit
    simulator.push(*(message() for _ in range(500)))
    # When the backlog is at the limit
    poller = start_poller(MAX_PENDING=150)
    poller.tells("backlog 150, MAX_PENDING 150: fetching stops")
    # Then Telegram keeps the rest, and the last batch until it is confirmed
    polls = simulator.stats()["polls"]
    assert (len(lane(redis_url)), confirmed(simulator)) == (150, 100)
    # When workers have emptied the lanes
    drain(redis_url)
    # Then it fetches again, up to the limit
    poller.tells("backlog 0: fetching continues")
    until(lambda: len(lane(redis_url)) == 150)
    assert simulator.stats()["polls"] == polls + 2


def test_existing_backlog_counts(simulator: Simulator, start_poller: StartPoller) -> None:
    simulator.push(*(message() for _ in range(5)))
    killed = start_poller(MAX_PENDING=4)
    killed.tells("fetching stops")
    killed.kill()
    polls = simulator.stats()["polls"]
    start_poller(MAX_PENDING=4).tells("backlog 4, MAX_PENDING 4: fetching stops")
    assert simulator.stats()["polls"] == polls


def test_malformed_updates_are_buried_and_the_rest_appended(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    first = simulator.push(message())
    simulator.push_raw("text", None, {"message": {}})
    last = simulator.push(message())
    start_poller()
    until(lambda: confirmed(simulator) == 5)
    assert lane(redis_url) == first + last
    assert buried(redis_url) == 3


def test_half_a_surrogate_pair_reaches_its_lane(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    update = r'{"update_id":5,"message":{"chat":{"id":7,"type":"private"},"text":"\ud83d"}}'
    simulator.fault(method="getUpdates", body=f'{{"ok":true,"result":[{update}]}}')
    start_poller()
    until(lambda: lane(redis_url) == [5])


def test_batch_without_ids_is_buried_once(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given a batch that no offset can confirm
    simulator.push_raw("text", None)
    poller = start_poller()
    poller.tells("no update of the batch has a valid id")
    polls = simulator.stats()["polls"]
    until(lambda: simulator.stats()["polls"] >= polls + 2)
    # When an update with an id follows
    pushed = simulator.push(message())
    # Then all of them are confirmed
    until(lambda: confirmed(simulator) == 3)
    poller.tells("Telegram: works again")
    assert lane(redis_url) == pushed
    assert buried(redis_url) == 2
    assert len(poller.told("no update of the batch has a valid id")) == 1


def test_unrequested_kinds_are_dropped(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given an update from before the change of ALLOWED_UPDATES
    simulator.push({"poll": {"id": "1"}})
    pushed = simulator.push(message())
    # When a poller starts with the new list
    poller = start_poller(ALLOWED_UPDATES="message")
    # Then it is confirmed, and in no lane
    until(lambda: confirmed(simulator) == 2)
    assert lane(redis_url) == pushed
    poller.stop()
    assert poller.told("2 updates so far: 1 added, 0 seen before, 0 buried, 1 filtered out; backlog 1")


def test_ids_that_restart_lower_are_followed(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    simulator.push({"update_id": 900_000, **message()})
    start_poller()
    until(lambda: confirmed(simulator) == 1)
    simulator.push({"update_id": 5, **message()}, {"update_id": 6, **message()})
    until(lambda: confirmed(simulator) == 3)
    assert sorted(lane(redis_url)) == [5, 6, 900_000]


def test_server_without_long_polling_is_polled_with_pauses(start_poller: StartPoller) -> None:
    # Given a server that answers at once if it has no updates
    with start(TOKEN, quirks=False) as simulator:
        began_s = time.monotonic()
        # When a poller has sent five requests
        poller = start_poller(BOT_API_URL=simulator.url, POLL_TIMEOUT=0)
        until(lambda: simulator.stats()["polls"] >= 5)
        # Then there were four pauses. No upper limit: a slow machine makes them longer
        assert time.monotonic() - began_s > 4 * SAME_OFFSET_EVERY_S
        poller.stop()
