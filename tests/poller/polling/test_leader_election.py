"""Several `chatlanes poller` processes for one token: one leads, the others are on standby and take over."""

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
import requests

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.protocol import connect
from chatlanes.poller.leader_election import LEADER, LEASE_MS
from chatlanes_sandbox.simulator import Simulator
from tests.poller.conftest import StartPoller
from tests.poller.lanes import lane, lanes, writes_held_up
from tests.poller.process import RunningPoller
from tests.poller.tcp_link import TcpLink
from tests.support.bot_api import BOT_ID, TOKEN, message
from tests.support.waiting import WITHIN_S, until

#: The promise is 10 s after a kill and 2 s after a clean stop; a loaded machine may take longer.
SOON_S = 40.0
#: Number of updates, and updates per second.
MANY, RATE = 2_000, 400


@pytest.fixture
def gate(own_redis: Server) -> Iterator[TcpLink]:
    """A link in front of its own Redis."""
    gate = TcpLink(own_redis.port)
    yield gate
    gate.end()


def start_pair(start_poller: StartPoller, **settings: object) -> tuple[RunningPoller, RunningPoller]:
    """A leader and a standby."""
    leader = start_poller(**settings)
    leader.tells("leading")
    standby = start_poller(**settings)
    standby.tells(f"standing by: {name(leader)} leads")
    return leader, standby


def name(poller: RunningPoller) -> str:
    return f"{socket.gethostname()}:{poller.pid}"


def leads(poller: RunningPoller) -> None:
    until(lambda: poller.told("leading"), SOON_S)


def wait_for_the_end_of_its_lease(redis_url: str) -> None:
    """Waits until the lease that Redis has now is over."""
    with connect(redis_url) as client:
        until_ms = int(client.hget(LEADER % BOT_ID, "until_ms") or 0)
        until(lambda: client.time()[0] * 1000 > until_ms)


def all_arrived(simulator: Simulator, redis_url: str) -> None:
    """Waits for the end of the stream, and checks that every update is in its lane once, in order."""
    until(lambda: simulator.stats()["confirmed"] == MANY)
    found = lanes(redis_url)
    assert all(each == sorted(each) for each in found)
    assert sorted(chain.from_iterable(found)) == list(range(1, MANY + 1))


def test_lead_outlasts_a_long_poll(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given a leader in a long poll
    leader, standby = start_pair(start_poller)
    until(lambda: simulator.stats()["polls"])
    with connect(redis_url) as client:
        fence, until_ms = client.hmget(LEADER % BOT_ID, "fence", "until_ms")
        # When its current lease, and another one, would be over
        until(lambda: int(client.hget(LEADER % BOT_ID, "until_ms") or 0) > int(until_ms or 0) + LEASE_MS)
        # Then it still leads, with the same poll
        assert client.hget(LEADER % BOT_ID, "fence") == fence
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    assert (standby.told("leading"), leader.told("lost the lead")) == ([], [])
    assert not leader.told("Telegram: ")


def test_standby_takes_over_after_a_kill_under_load(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given two pollers during a stream of updates
    leader, standby = start_pair(start_poller)
    simulator.stream(chats=5, rate=RATE, total=MANY)
    until(lambda: simulator.stats()["confirmed"] > MANY / 4)
    # When the leader is killed
    leader.kill()
    # Then the other leads soon, and no update is lost or duplicated
    leads(standby)
    all_arrived(simulator, redis_url)


def test_standby_takes_over_after_a_stop_under_load(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given two pollers during a stream of updates
    leader, standby = start_pair(start_poller)
    simulator.stream(chats=5, rate=RATE, total=MANY)
    until(lambda: simulator.stats()["confirmed"] > MANY / 4)
    # When the leader is stopped
    leader.stop()
    # Then the other leads soon, and no update is lost, or even fetched twice
    leads(standby)
    all_arrived(simulator, redis_url)
    standby.stop()
    assert standby.told(", 0 seen before")


def test_stopped_leader_leaves_nothing_in_redis(start_poller: StartPoller, redis_url: str) -> None:
    leader = start_poller()
    leader.tells("leading")
    leader.stop()
    with connect(redis_url) as client:
        assert not client.exists(LEADER % BOT_ID)


def test_stopped_standby_does_not_affect_the_lead(start_poller: StartPoller, redis_url: str) -> None:
    leader, standby = start_pair(start_poller)
    standby.stop()
    with connect(redis_url) as client:
        assert client.hget(LEADER % BOT_ID, "holder") == name(leader).encode()


def test_thawed_leader_becomes_the_standby(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given a leader in a long poll
    leader, standby = start_pair(start_poller)
    until(lambda: simulator.stats()["polls"])
    # When it is frozen for longer than its lease
    leader.signal(signal.SIGSTOP)
    leads(standby)
    pushed = simulator.push(message(), message())
    until(lambda: lane(redis_url) == pushed)
    leader.signal(signal.SIGCONT)
    # Then it notices, does not poll, and logs this once
    leader.tells("lost the lead")
    leader.tells(f"standing by: {name(standby)} leads")
    pushed += simulator.push(message(), message())
    until(lambda: lane(redis_url) == pushed)
    assert not leader.told("Telegram: ")
    assert not standby.told("Telegram: ")
    # And it takes over when the other dies
    standby.kill()
    leader.tells("leading", times=2)
    assert len(leader.told("lost the lead")) == 1


def test_late_append_of_an_old_leader_is_refused(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server, gate: TcpLink
) -> None:
    # Given a leader whose append is held on its way to Redis
    old = start_poller(REDIS_URL=f"redis://127.0.0.1:{gate.port}/0")
    old.tells("leading")
    until(lambda: simulator.stats()["polls"])
    gate.shut()
    [first] = simulator.push(message("a callback query"))
    until(lambda: gate.holds(b"a callback query"))
    # When Telegram drops the update, as it does with a callback query after 150 s, and a new leader appends the next
    # one
    assert first is not None
    requests.post(f"{simulator.url}/bot{TOKEN}/getUpdates", {"offset": first + 1}, timeout=WITHIN_S)
    pushed = simulator.push(message())
    new = start_poller(REDIS_URL=own_redis.url)
    until(lambda: lane(own_redis.url) == pushed)
    # Then the late append of the old leader changes nothing
    gate.open()
    old.tells(f"standing by: {name(new)} leads")
    assert lane(own_redis.url) == pushed
    # And the old leader can lead again
    new.stop()
    pushed += simulator.push(message())
    until(lambda: lane(own_redis.url) == pushed)
    old.stop()
    assert old.told("1 updates so far: 1 added, 0 seen before")


def test_batch_survives_an_outage_longer_than_a_lease(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    # Given a poller whose append waits for Redis
    poller = start_poller(REDIS_URL=own_redis.url)
    until(lambda: simulator.stats()["polls"])
    with writes_held_up(own_redis) as append_waits:
        pushed = simulator.push(message())
        until(append_waits)
        # When its lease is over
        wait_for_the_end_of_its_lease(own_redis.url)
    # Then it continues with its batch, because no other poller has led
    until(lambda: simulator.stats()["confirmed"] == 1)
    assert lane(own_redis.url) == pushed
    poller.stop()
    assert len(poller.told("leading")) == 1
    assert poller.told("1 updates so far: 1 added, 0 seen before")


def test_one_poller_leads_after_a_restart_of_redis(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    # Given two pollers that have appended updates
    pair = start_pair(start_poller, REDIS_URL=own_redis.url)
    pushed = simulator.push(message(), message())
    until(lambda: simulator.stats()["confirmed"] == 2)
    # When Redis is unavailable, both pollers notice, and it returns
    own_redis.kill()
    pushed += simulator.push(message(), message())
    for poller in pair:
        poller.tells("Redis: ")
    with start_server(own_redis.log.parent, port=own_redis.port):
        # Then no update is lost or duplicated
        until(lambda: simulator.stats()["confirmed"] == 4)
        for poller in pair:
            poller.tells("Redis: works again")
        pushed += simulator.push(message())
        until(lambda: simulator.stats()["confirmed"] == 5)
        assert lane(own_redis.url) == pushed
        # And the standby knows the leader
        with connect(own_redis.url) as client:
            holder = (client.hget(LEADER % BOT_ID, "holder") or b"").decode()
        [other] = [poller for poller in pair if name(poller) != holder]
        other.tells(f"standing by: {holder} leads")


def test_one_poller_leads_after_redis_is_emptied(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    start_pair(start_poller)
    with connect(redis_url) as client:
        client.flushall()
    pushed = simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 1)
    assert lane(redis_url) == pushed


def test_last_of_three_pollers_leads(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given three pollers
    first, second = start_pair(start_poller)
    third = start_poller()
    third.tells(f"standing by: {name(first)} leads")
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    # When the leader dies
    first.kill()
    # Then one of the others leads, and the last one knows it
    until(lambda: second.told("leading") or third.told("leading"), SOON_S)
    leader, last = (second, third) if second.told("leading") else (third, second)
    last.tells(f"standing by: {name(leader)} leads")
    pushed += simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 2)
    # And when that one dies too, the last one leads
    leader.kill()
    leads(last)
    pushed += simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 3)
    assert lane(redis_url) == pushed


def test_conflict_does_not_change_the_leader(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given two pollers
    leader, standby = start_pair(start_poller)
    until(lambda: simulator.stats()["polls"])
    # When a poller that does not use our Redis polls too
    with ThreadPoolExecutor() as threads:
        other = threads.submit(
            requests.post, f"{simulator.url}/bot{TOKEN}/getUpdates", {"timeout": 50}, timeout=WITHIN_S
        )
        # Then the leader logs this, waits, and continues when the other is gone
        leader.tells("Telegram: 409, another poller gets this bot's updates")
        assert other.result(WITHIN_S).status_code == 409
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    leader.tells("Telegram: works again")
    assert not leader.told("lost the lead")
    assert not standby.told("leading")


def test_pollers_of_different_bots_are_independent(start_poller: StartPoller, redis_url: str) -> None:
    with connect(redis_url) as client:
        client.hset(LEADER % 1, mapping={"fence": "9", "holder": "other:1", "until_ms": 2**60})
    start_poller().tells("leading")
