"""Several `chatlanes poller` for one token: one leads, the others stand by, and take over whatever becomes of it."""

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
import requests

from chatlanes.lanes.protocol.connect import connect
from chatlanes.poller.polling.leader_election import LEADER, LEASE_MS
from chatlanes.sandbox.server import Server, start_server
from chatlanes.sandbox.simulator import Simulator
from tests.poller.conftest import StartPoller
from tests.poller.lanes import lane, lanes, writes_held_up
from tests.poller.process import RunningPoller
from tests.poller.tcp_link import TcpLink
from tests.support.bot_api import BOT_ID, TOKEN, message
from tests.support.waiting import WITHIN_S, until

#: What is promised is 10 s after a kill and 2 s after a clean stop; a loaded machine may take longer.
SOON_S = 40.0
#: Updates, and how many of them come in a second.
MANY, RATE = 2_000, 400


@pytest.fixture
def gate(own_redis: Server) -> Iterator[TcpLink]:
    """In front of a Redis of its own."""
    gate = TcpLink(own_redis.port)
    yield gate
    gate.end()


def start_pair(start_poller: StartPoller, **settings: object) -> tuple[RunningPoller, RunningPoller]:
    """A leader, and one that stands by."""
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
    """Of the one that Redis knows now."""
    with connect(redis_url) as client:
        until_ms = int(client.hget(LEADER % BOT_ID, "until_ms") or 0)
        until(lambda: client.time()[0] * 1000 > until_ms)


def all_arrived(simulator: Simulator, redis_url: str) -> None:
    """The stream is over, and every update of it stands in its lane once, in order."""
    until(lambda: simulator.stats()["confirmed"] == MANY)
    found = lanes(redis_url)
    assert all(each == sorted(each) for each in found)
    assert sorted(chain.from_iterable(found)) == list(range(1, MANY + 1))


def test_a_long_poll_is_longer_than_a_lease_and_the_lead_stays(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given a leader in a long poll
    leader, standby = start_pair(start_poller)
    until(lambda: simulator.stats()["polls"])
    with connect(redis_url) as client:
        fence, until_ms = client.hmget(LEADER % BOT_ID, "fence", "until_ms")
        # When the lease it has now, and another one, would be over
        until(lambda: int(client.hget(LEADER % BOT_ID, "until_ms") or 0) > int(until_ms or 0) + LEASE_MS)
        # Then it still leads, by that one poll
        assert client.hget(LEADER % BOT_ID, "fence") == fence
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    assert (standby.told("leading"), leader.told("lost the lead")) == ([], [])
    assert not leader.told("Telegram: ")


def test_the_leader_is_killed_under_load_and_the_other_goes_on(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given two pollers, in the middle of a stream of updates
    leader, standby = start_pair(start_poller)
    simulator.stream(chats=5, rate=RATE, total=MANY)
    until(lambda: simulator.stats()["confirmed"] > MANY / 4)
    # When the one that leads is killed
    leader.kill()
    # Then the other leads soon, and nothing is lost or twice
    leads(standby)
    all_arrived(simulator, redis_url)


def test_the_leader_is_stopped_under_load_and_the_other_goes_on(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given two pollers, in the middle of a stream of updates
    leader, standby = start_pair(start_poller)
    simulator.stream(chats=5, rate=RATE, total=MANY)
    until(lambda: simulator.stats()["confirmed"] > MANY / 4)
    # When the one that leads is stopped
    leader.stop()
    # Then the other leads soon, and nothing is lost, or even fetched twice
    leads(standby)
    all_arrived(simulator, redis_url)
    standby.stop()
    assert standby.told(", 0 seen before")


def test_a_stopped_leader_leaves_nothing_in_redis(start_poller: StartPoller, redis_url: str) -> None:
    leader = start_poller()
    leader.tells("leading")
    leader.stop()
    with connect(redis_url) as client:
        assert not client.exists(LEADER % BOT_ID)


def test_a_standby_that_is_stopped_leaves_the_lead_alone(start_poller: StartPoller, redis_url: str) -> None:
    leader, standby = start_pair(start_poller)
    standby.stop()
    with connect(redis_url) as client:
        assert client.hget(LEADER % BOT_ID, "holder") == name(leader).encode()


def test_a_leader_that_was_frozen_stands_by_when_it_wakes(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given a leader in a long poll
    leader, standby = start_pair(start_poller)
    until(lambda: simulator.stats()["polls"])
    # When it is frozen for longer than its lease
    leader.signal(signal.SIGSTOP)
    leads(standby)
    pushed = simulator.push(message(), message())
    until(lambda: lane(redis_url) == pushed)
    leader.signal(signal.SIGCONT)
    # Then it knows, does not poll again, and says so once
    leader.tells("lost the lead")
    leader.tells(f"standing by: {name(standby)} leads")
    pushed += simulator.push(message(), message())
    until(lambda: lane(redis_url) == pushed)
    assert not leader.told("Telegram: ")
    assert not standby.told("Telegram: ")
    # And takes over when it is its turn
    standby.kill()
    leader.tells("leading", times=2)
    assert len(leader.told("lost the lead")) == 1


def test_a_late_append_of_an_old_leader_is_refused(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server, gate: TcpLink
) -> None:
    # Given a leader with an update in hand that does not get through to Redis
    old = start_poller(REDIS_URL=f"redis://127.0.0.1:{gate.port}/0")
    old.tells("leading")
    until(lambda: simulator.stats()["polls"])
    gate.shut()
    [first] = simulator.push(message("a callback query"))
    until(lambda: gate.holds(b"a callback query"))
    # When Telegram forgets it, as it does with a callback query after 150 s, and a new leader appends the next one
    assert first is not None
    requests.post(f"{simulator.url}/bot{TOKEN}/getUpdates", {"offset": first + 1}, timeout=WITHIN_S)
    pushed = simulator.push(message())
    new = start_poller(REDIS_URL=own_redis.url)
    until(lambda: lane(own_redis.url) == pushed)
    # Then the old one's, arriving at last, changes nothing
    gate.open()
    old.tells(f"standing by: {name(new)} leads")
    assert lane(own_redis.url) == pushed
    # And the old one is as good as any other when its turn comes
    new.stop()
    pushed += simulator.push(message())
    until(lambda: lane(own_redis.url) == pushed)
    old.stop()
    assert old.told("1 updates so far: 1 added, 0 seen before")


def test_a_batch_survives_an_outage_longer_than_a_lease(
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
    # Then it goes on with what it has: nobody else has led
    until(lambda: simulator.stats()["confirmed"] == 1)
    assert lane(own_redis.url) == pushed
    poller.stop()
    assert len(poller.told("leading")) == 1
    assert poller.told("1 updates so far: 1 added, 0 seen before")


def test_redis_is_killed_and_started_again_and_one_of_them_leads(
    simulator: Simulator, start_poller: StartPoller, own_redis: Server
) -> None:
    # Given two pollers that have appended some
    pair = start_pair(start_poller, REDIS_URL=own_redis.url)
    pushed = simulator.push(message(), message())
    until(lambda: simulator.stats()["confirmed"] == 2)
    # When Redis goes away, for both to see, and comes back
    own_redis.kill()
    pushed += simulator.push(message(), message())
    for poller in pair:
        poller.tells("Redis: ")
    with start_server(own_redis.log.parent, port=own_redis.port):
        # Then nothing is lost or twice
        until(lambda: simulator.stats()["confirmed"] == 4)
        for poller in pair:
            poller.tells("Redis: works again")
        pushed += simulator.push(message())
        until(lambda: simulator.stats()["confirmed"] == 5)
        assert lane(own_redis.url) == pushed
        # And whoever does not lead knows who does
        with connect(own_redis.url) as client:
            holder = (client.hget(LEADER % BOT_ID, "holder") or b"").decode()
        [other] = [poller for poller in pair if name(poller) != holder]
        other.tells(f"standing by: {holder} leads")


def test_redis_forgets_everything_and_one_of_them_leads(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    start_pair(start_poller)
    with connect(redis_url) as client:
        client.flushall()
    pushed = simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 1)
    assert lane(redis_url) == pushed


def test_of_three_the_last_one_leads_in_the_end(
    simulator: Simulator, start_poller: StartPoller, redis_url: str
) -> None:
    # Given three
    first, second = start_pair(start_poller)
    third = start_poller()
    third.tells(f"standing by: {name(first)} leads")
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    # When the leader dies
    first.kill()
    # Then one of the others leads, and the last one knows which
    until(lambda: second.told("leading") or third.told("leading"), SOON_S)
    leader, last = (second, third) if second.told("leading") else (third, second)
    last.tells(f"standing by: {name(leader)} leads")
    pushed += simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 2)
    # And when that one dies too, it leads
    leader.kill()
    leads(last)
    pushed += simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 3)
    assert lane(redis_url) == pushed


def test_a_conflict_does_not_change_the_leader(simulator: Simulator, start_poller: StartPoller, redis_url: str) -> None:
    # Given two pollers of ours
    leader, standby = start_pair(start_poller)
    until(lambda: simulator.stats()["polls"])
    # When one that knows nothing of our Redis polls too
    with ThreadPoolExecutor() as threads:
        other = threads.submit(
            requests.post, f"{simulator.url}/bot{TOKEN}/getUpdates", {"timeout": 50}, timeout=WITHIN_S
        )
        # Then the one that leads says so, waits, and goes on when it is gone
        leader.tells("Telegram: 409, another poller gets this bot's updates")
        assert other.result(WITHIN_S).status_code == 409
    pushed = simulator.push(message())
    until(lambda: lane(redis_url) == pushed)
    leader.tells("Telegram: works again")
    assert not leader.told("lost the lead")
    assert not standby.told("leading")


def test_pollers_of_different_bots_know_nothing_of_each_other(start_poller: StartPoller, redis_url: str) -> None:
    with connect(redis_url) as client:
        client.hset(LEADER % 1, mapping={"fence": "9", "holder": "other:1", "until_ms": 2**60})
    start_poller().tells("leading")
