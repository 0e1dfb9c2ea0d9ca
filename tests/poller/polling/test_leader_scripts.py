"""take, renew, resign: one fence leads, on every server."""

from dataclasses import dataclass

import pytest
from redis import Redis

from celery_lanes.protocol import Argument, Store, script
from chatlanes.poller.leader_election import LEADER

KEY = LEADER % 7
#: So long that a slow test does not use a tenth of it.
LEASE_MS = 3_600_000


@dataclass(frozen=True)
class Leader:
    """The whole state: the leader, its fence, and the remaining lease in units of one lease."""

    fence: str
    holder: str
    leases: float


def run(client: Redis, verb: str, **arguments: Argument) -> object:
    return Store(client).run(script(verb, "chatlanes.poller").command([KEY], (), **arguments))


def take(client: Redis, holder: str, fence: str = "") -> tuple[str, str]:
    answer = run(client, "take", fence=fence, holder=holder, lease_ms=LEASE_MS)
    assert isinstance(answer, list)
    return answer[0].decode(), answer[1].decode()


def renew(client: Redis, fence: str) -> object:
    return run(client, "renew", fence=fence, lease_ms=LEASE_MS)


def now_ms(client: Redis) -> float:
    seconds, micros = client.time()
    return float(seconds) * 1000 + float(micros) / 1000


def seed(client: Redis, leader: Leader) -> None:
    until_ms = round(now_ms(client) + leader.leases * LEASE_MS)
    client.hset(KEY, mapping={"fence": leader.fence, "holder": leader.holder, "until_ms": until_ms})


def state(client: Redis) -> Leader | None:
    """The whole state in Redis. Fails on unknown keys or fields."""
    names = client.keys()
    if not names:
        return None
    assert names == [KEY.encode()]
    found = client.hgetall(KEY)
    assert set(found) == {b"fence", b"holder", b"until_ms"}
    leases = (int(found[b"until_ms"]) - now_ms(client)) / LEASE_MS
    return Leader(found[b"fence"].decode(), found[b"holder"].decode(), round(leases, 1))


OURS, ANOTHERS = "9000000000000001", "9000000000000005"


def test_first_to_ask_leads(client: Redis) -> None:
    fence, leader = take(client, "a:1")
    assert leader == "a:1"
    assert state(client) == Leader(fence, "a:1", 1)


def test_other_leader_is_named(client: Redis) -> None:
    seed(client, Leader(ANOTHERS, "b:2", 0.5))
    assert take(client, "a:1") == ("", "b:2")
    assert take(client, "a:1", OURS) == ("", "b:2")
    assert state(client) == Leader(ANOTHERS, "b:2", 0.5)


def test_next_leader_has_a_higher_fence(client: Redis) -> None:
    seed(client, Leader(ANOTHERS, "b:2", -0.1))
    assert take(client, "a:1", OURS) == ("9000000000000006", "a:1")
    assert state(client) == Leader("9000000000000006", "a:1", 1)


@pytest.mark.parametrize("leases", [-1, 0.5])
def test_newest_fence_can_be_taken_again_after_its_lease(client: Redis, leases: float) -> None:
    seed(client, Leader(OURS, "a:1", leases))
    assert take(client, "a:1", OURS) == (OURS, "a:1")
    assert state(client) == Leader(OURS, "a:1", 1)


def test_lease_from_before_the_clock_was_set_back_is_over(client: Redis) -> None:
    seed(client, Leader(ANOTHERS, "b:2", 1.5))
    assert take(client, "a:1") == ("9000000000000006", "a:1")


def test_asking_while_another_leads_writes_nothing(client: Redis) -> None:
    seed(client, Leader(ANOTHERS, "b:2", 0.5))
    changes = client.info("persistence")["rdb_changes_since_last_save"]
    take(client, "a:1")
    assert client.info("persistence")["rdb_changes_since_last_save"] == changes


@pytest.mark.parametrize("leases", [-1, 0.5])
def test_renewal_extends_even_an_expired_lease(client: Redis, leases: float) -> None:
    seed(client, Leader(OURS, "a:1", leases))
    assert renew(client, OURS) == 1
    assert state(client) == Leader(OURS, "a:1", 1)


def test_renewal_with_an_old_fence_changes_nothing(client: Redis) -> None:
    seed(client, Leader(ANOTHERS, "b:2", -1))
    assert renew(client, OURS) == 0
    assert state(client) == Leader(ANOTHERS, "b:2", -1)


def test_late_renewal_does_not_undo_a_resignation(client: Redis) -> None:
    seed(client, Leader(OURS, "a:1", 0.5))
    assert run(client, "resign", fence=OURS) == 1
    assert renew(client, OURS) == 0
    assert state(client) is None


def test_old_leader_cannot_resign(client: Redis) -> None:
    seed(client, Leader(ANOTHERS, "b:2", 0.5))
    assert run(client, "resign", fence=OURS) == 0
    assert state(client) == Leader(ANOTHERS, "b:2", 0.5)
