"""Makes messages that wait behind a run part of it, before it begins: they become one message.

Guarantees that this run and later ones have the bodies of all of them, even if an answer of Redis is lost or the worker
dies at any point, and that they are settled, buried and replayed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from celery_lanes.errors import LeaseLost
from celery_lanes.protocol import envelope, keys, plain, verbs
from celery_lanes.protocol.codec import loads
from celery_lanes.worker.delivery import Delivery


class Follower(NamedTuple):
    """A message behind another one. `task`: the name of its task. `age_s`: since its append or replay. `bodies`: in
    Celery's JSON format; several if it is a group.
    """

    id: str
    task: str
    age_s: float
    bodies: tuple[str, ...]


def followers(delivery: Delivery, most: int) -> list[Follower]:
    """The messages behind this one in its first lane, at most this many, the oldest first. While Redis does not answer,
    behaves like Delivery.park.
    """
    return delivery.journal.retry_until_done(lambda: _followers(delivery, most))


def gather(delivery: Delivery, behind: Sequence[Follower]) -> None:
    """Make these messages, which follow directly in all its lanes, part of this one: `delivery.bodies` has them. Those
    from the first one on that cannot be, such as one with other lanes, remain in their places.

    Raises LeaseLost. While Redis does not answer, behaves like Delivery.park.
    """
    command = verbs.gather(delivery.id, delivery.fence, [each.id for each in behind])
    asked = command, plain("GET", keys.body(delivery.id))
    gathered, stored = delivery.journal.retry_until_done(lambda: delivery.lanes.store.run_all(*asked, together=True))
    if command.read(gathered) is None or stored is None:
        delivery.check()
        raise LeaseLost(f"the lease of {delivery.id} was lost")
    # Read back, and not taken from `behind`: if the answer was lost, they were gathered by an earlier attempt.
    delivery.bodies = _bodies(stored)[1:]
    delivery.is_gathered = bool(delivery.bodies)


def _followers(delivery: Delivery, most: int) -> list[Follower]:
    run: Any = delivery.lanes.store.run_all
    [joined] = run(plain("HGET", keys.message(delivery.id), "lanes"))
    lane = (joined or b"").decode().partition("\n")[0]
    time, found = run(plain("TIME"), plain("ZRANGE", keys.lane(lane), 1, most))
    now_us, ids = int(time[0]) * 1_000_000 + int(time[1]), [each.decode() for each in found]
    asked = [(plain("HGET", keys.message(each), "seq"), plain("GET", keys.body(each))) for each in ids]
    values = iter(run(*[command for pair in asked for command in pair]) if ids else [])
    return [
        Follower(id_, _task(body), max(now_us - float(seq), 0.0) / 1e6, _bodies(body))
        for id_, seq, body in zip(ids, values, values, strict=True)
        if seq is not None and body is not None
    ]


def _task(stored: bytes) -> str:
    try:
        return str(loads(envelope.split(stored)[0].partition(b"\n")[0])["headers"]["task"])
    except (ValueError, LookupError, TypeError):
        return ""  # it is not a task


def _bodies(stored: bytes) -> tuple[str, ...]:
    return tuple(each.partition(b"\n")[2].decode() for each in envelope.split(stored))
