"""The systems that a chaos run can test: lanes, and for comparison the usual recipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from redis import Redis

from celery_lanes.protocol import Store, keys
from chaos.systems import agents, orders, recipe, schedules
from chaos.systems.bot import HANDLED
from chaos.systems.broadcast import unreached
from chatlanes.bot.stored import SESSION

PYTHON = sys.executable
SHOP = "chaos.systems.shop"
_WORKER = ("worker", "-l", "INFO")


@dataclass(frozen=True)
class System:
    """Its parts with their commands, the parts that fork, and the number of updates it holds.

    `buried`, `sessions`: None if it has none. `lease_s`: None if take-backs are read from Redis.
    `give_up_after_s`: give up when the backlog has not shrunk for this long at the end.
    `has_drills`: run faults/drills.py.
    """

    name: str
    order_by: str
    pollers: dict[str, list[str]]
    workers: dict[str, list[str]]
    #: The shop and its relay (shop.py), the shop first; or none.
    publishers: dict[str, list[str]]
    forking: tuple[str, ...]
    pending: Callable[[Redis], int]
    buried: Callable[[Redis], frozenset[int]] | None
    sessions: Callable[[Redis], dict[str, int]] | None
    lease_s: float | None
    give_up_after_s: float
    has_drills: bool = False
    #: True if it has timers, schedules and broadcasts; and the number of recipients of the main broadcast (0: none).
    has_timers: bool = False
    recipients: int = 0
    #: True if it has agents, which need steps, questions and stops.
    has_agents: bool = False
    #: True if its pollers are webhook receivers.
    receives: bool = False
    #: Actions of the specification (spec/conformance/judge.py) that none of its parts uses.
    unused: tuple[str, ...] = ()
    #: Further settings, how many updates follow another of their sender in the same chat, and the longest handler.
    settings: Mapping[str, str] = field(default_factory=dict)
    repeats: float = 0.0
    slowest_s: float = 0.5

    @property
    def parts(self) -> dict[str, list[str]]:
        return {**self.pollers, **self.workers, **self.publishers}


def _lane_worker(pool: str, concurrency: int) -> list[str]:
    return [
        PYTHON,
        "-m",
        "celery",
        "-A",
        "chatlanes",
        *_WORKER,
        "-n",
        f"{pool}@chaos",
        "-P",
        pool,
        "-c",
        str(concurrency),
        "-I",
        orders.__name__,
    ]


def _recipe_worker(number: int) -> list[str]:
    name, queue = f"queue{number}@chaos", f"updates.{number}"
    return [PYTHON, "-m", "celery", "-A", "chaos.systems.recipe", *_WORKER, "-n", name, "-c", "1", "-Q", queue]


def _left_in_queues(client: Redis) -> int:
    return sum(client.llen(f"updates.{number}") for number in range(recipe.QUEUES)) + client.hlen("unacked")


def _waiting_timers(client: Redis) -> int:
    count: int = client.zcard(keys.TIMERS)
    return count + unreached(client)


def _dead_letters(client: Redis) -> frozenset[int]:
    """The updates among them. A timer, an occurrence or a recipient that is buried is judged as lost."""
    message_ids: list[bytes] = client.zrange(keys.DEAD, 0, -1)  # type: ignore[assignment]
    names = [message_id.decode().partition(":")[2] for message_id in message_ids]
    return frozenset(int(name) for name in names if name.isdecimal())


def _sessions(client: Redis) -> dict[str, int]:
    found = [key.decode() for key in client.scan_iter(f"{SESSION}*", count=1000)]
    return {key.partition("/")[2]: json.loads(client.get(key) or "{}")[HANDLED] for key in found}


LANES = System(
    name="lanes",
    order_by="chat+user",
    pollers={name: [PYTHON, "-m", "chatlanes.poller"] for name in ("poller", "standby")},
    workers={
        "prefork": _lane_worker("prefork", 4),
        "threads": _lane_worker("threads", 8),
        "gevent": _lane_worker("gevent", 20),
    },
    publishers={
        "shop": [PYTHON, "-m", SHOP],
        "relay": [PYTHON, "-m", "celery", "-A", SHOP, "lanes", "outbox"],
    },
    forking=("prefork",),
    pending=lambda client: Store(client).pending("updates") + _waiting_timers(client),
    buried=_dead_letters,
    sessions=_sessions,
    lease_s=None,
    give_up_after_s=120.0,
    has_drills=True,
    has_timers=True,
    has_agents=True,
    settings={
        "SCHEDULES": schedules.PATH,
        "COLLECT": agents.GROUP,
        "COLLECT_QUIET": "0.05",
        "INTERRUPT": "steer",
    },
    unused=("interrupt", "hold", "unhold", "gather", "shield", "unshield"),
)

#: Ordered by chat only: Telegram keeps no order between the chats of a user, and repeated updates run late.
WEBHOOK = replace(
    LANES,
    name="webhook",
    order_by="chat",
    pollers={name: [PYTHON, "-m", "chatlanes.poller", "webhook", "--workers=2"] for name in ("receiver", "second")},
    forking=("prefork", "receiver", "second"),
    receives=True,
    unused=("interrupt", "gather", "shield", "unshield"),
)

COLLECTING = replace(
    LANES,
    name="collecting",
    settings={
        **LANES.settings,
        "COLLECT": "messages",
        "COLLECT_QUIET": "0.2",
        "COLLECT_MAX_WAIT": "1.5",
        "COLLECT_MAX": "6",
        "INTERRUPT": "on",
    },
    unused=("take", "hold", "unhold", "gather", "shield", "unshield"),
    repeats=0.7,
    slowest_s=1.5,
    has_drills=False,
)

#: Ordered by chat only: a queue can keep one order. It never becomes idle once an update has killed its worker.
RECIPE = System(
    name="recipe",
    order_by="chat",
    pollers={"poller": [PYTHON, "-m", "chaos.systems.recipe"]},
    workers={f"queue{number}": _recipe_worker(number) for number in range(recipe.QUEUES)},
    publishers={},
    forking=tuple(f"queue{number}" for number in range(recipe.QUEUES)),
    pending=_left_in_queues,
    buried=None,
    sessions=None,
    lease_s=recipe.VISIBILITY_TIMEOUT_S,
    give_up_after_s=45.0,
)
