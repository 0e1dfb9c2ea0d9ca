"""The same seed gives the same plan."""

from dataclasses import replace
from itertools import islice

from chaos.faults.plan import faults
from chaos.systems import poison
from chaos.systems.definitions import LANES, RECIPE, WEBHOOK
from chaos.systems.feed import updates
from chatlanes.updates.routing import keys_of

ALL = [replace(system, recipients=1) for system in (LANES, WEBHOOK)] + [RECIPE]


def test_same_seed_gives_same_faults() -> None:
    first, same, other = (list(islice(faults(seed, LANES, 2.0), 50)) for seed in (1, 1, 2))

    assert first == same != other


def test_every_part_gets_every_kind_of_fault() -> None:
    for system in ALL:
        dealt = {(fault.what, fault.target) for fault in islice(faults(1, system, 2.0), 2_000)}
        assert {target for _, target in dealt} == {
            *system.parts,
            "redis",
            "telegram",
            *(("updates", "broadcast") if system.buried else ()),
        }
        assert {what for what, target in dealt if target == "redis"} >= {"kill", "outage", "stop_frozen"}
        assert {what for what, target in dealt if target in system.workers} >= {
            "kill_all",
            "hole_redis",
            "cut_telegram",
        }


def test_updates_are_in_one_or_two_crossing_lanes() -> None:
    keys = [tuple(keys_of({"update_id": 1, **update}, "chat+user")) for update in islice(updates(1), 2_000)]

    assert {len(each) for each in keys} == {1, 2}
    users = {user: {chat for chat, *users in keys if user in users} for _, *pair in keys for user in pair}
    assert all(len(chats) > 1 for chats in users.values())


def test_most_updates_are_not_poison() -> None:
    poisoned = [number for number in range(1, 1001) if poison.is_poison(number)]

    assert [poison.kills(number) for number in poisoned] == [False, True, False, True]
