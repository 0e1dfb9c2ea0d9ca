"""Publishing to a lane queue: a kombu message becomes one row of an append, or a timer if it has an eta or countdown.

Refuses messages whose order a lane cannot keep: see `row`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any
from uuid import UUID, uuid5

from celery.utils.time import maybe_iso8601, maybe_make_aware

from celery_lanes.errors import PublishRefused
from celery_lanes.protocol import (
    Group,
    Limited,
    NewMessage,
    Paced,
    check_group,
    check_lanes,
    check_limits,
    check_once,
    envelope,
)

#: The namespace of the ids of messages with a `once`.
_ONCE_IDS = UUID("8f2b1c52-6a0e-4c7e-9d4b-3a1f5e70c911")
#: Of a debounce or batch, whose messages are one message of Redis.
MOST_WAIT_S, MOST_IN_BATCH = 86_400, 10_000


def headers(
    keys: list[str] | None = None,
    *,
    once: tuple[str, int] | None = None,
    group: Group | None = None,
    stops: bool = False,
) -> dict[str, Any]:
    """Headers for a message that is ordered by `keys`. With an empty list it has no order and runs as soon as possible.
    Without a list, the keys are those of the task's lane. There are at most 64 keys of 1 to 256 bytes. Raises
    PublishRefused.

    `once` is a scope and a number, for example `("shop 7", order_id)`: a second publish with the same pair within 48 h
    is dropped, and its AsyncResult is that of the first, unless you pass a `task_id`. Consecutive messages with the
    same keys and `group` are one run, whose task reads the later ones from `self.delivery.bodies`. With `stops`, the
    message ends the one that is first in each of its lanes: see NewMessage.
    Use: `task.apply_async(args, queue="orders.0", headers=lanes.headers(["customer:9"]))`.
    """
    remembered = None if once is None else list(check_once(once))
    found: dict[str, Any] = {**key_headers(keys), envelope.ONCE: remembered}
    check_limits(keys or (), group)
    if group is not None:
        found[envelope.GROUP] = list(check_group(group))
    if stops:
        found[envelope.STOPS] = True
    return found


def key_headers(keys: list[str] | None) -> dict[str, Any]:
    """The keys with rates and limits, as any program may write them. None: the keys are those of the task's lane.
    Raises PublishRefused.
    """
    if keys is not None:
        check_lanes(keys)
    found: dict[str, Any] = {envelope.LANE_KEYS: keys and [*map(str.__str__, keys)]}
    if rates := {str(key): key.rate for key in keys or () if isinstance(key, Paced)}:
        found[envelope.RATES] = rates
    if limits := {str(key): key.concurrency for key in keys or () if isinstance(key, Limited)}:
        found[envelope.LIMITS] = limits
    return found


def limit(key: str, *, rate: str | None = None, concurrency: int | None = None) -> str:
    """A key that limits its messages over all workers. A message that waits takes no slot. It keeps the limit with
    which it was published. Raises PublishRefused unless either `rate` or `concurrency` is given.

    With `concurrency`, at most this many messages of the key run at the same time, and workers get them in the order in
    which they were published. The key is not a lane: give the message another one if its order matters.

    With a `rate`, the key is a lane, whose messages start evenly spread: "10/m" is ten a minute (s, m or h), as in
    Celery's `rate_limit`: a message starts at least six seconds after the one before. A message without a rate in
    the same lane neither waits nor counts.
    Use: `@app.task(lane=lanes.limit("customer:{customer}", concurrency=3))`, or for one message
    `headers=lanes.headers(["order:5", lanes.limit("customer:9", concurrency=3)])`.
    """
    check_lanes([key])
    if concurrency is None and rate is None:
        raise PublishRefused(f"None is not a rate: use rate='10/m' or concurrency=3 for the limit of {key!r:.300}")
    if concurrency is None:
        return Paced(key, rate or "")
    if rate is None:
        return Limited(key, concurrency)
    raise PublishRefused(
        f"{key!r:.300} cannot have a rate and a concurrency: with a rate it is a lane, which runs one message at a "
        "time. Use two keys, such as 'rate:customer:9' and 'customer:9'"
    )


def debounce(name: str, quiet_s: float, *, max_wait_s: float | None = None) -> Group:
    """One run for messages that follow each other closely: it starts when none has arrived for `quiet_s`, and at most
    `max_wait_s` (ten times `quiet_s`, at most a day) after the first one, or when there are 1,000. A `Group` under the
    name that people look for; `self.delivery.bodies` has the messages after the first. Raises PublishRefused.
    Use: `headers=lanes.headers(["customer:9"], group=lanes.debounce("sync", 2))`.
    """
    return _group(name, quiet_s, max_wait_s, 1000)


def batch(name: str, size: int, max_wait_s: float) -> Group:
    """One run for up to `size` messages: it starts when there are as many, or when the first one has waited for
    `max_wait_s`. A `Group` under the name that people look for; `self.delivery.bodies` has the messages after the
    first. Raises PublishRefused.
    Use: `headers=lanes.headers(["index"], group=lanes.batch("index", 100, 5))`.
    """
    return _group(name, max_wait_s, max_wait_s, size)


def _group(name: str, quiet_s: float, max_wait_s: float | None, most: int) -> Group:
    for seconds in (quiet_s, quiet_s if max_wait_s is None else max_wait_s):
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= MOST_WAIT_S:
            raise PublishRefused(f"{seconds!r:.100} is not a time: use seconds from 0.001 to {MOST_WAIT_S:,}")
    if max_wait_s is None:
        max_wait_s = min(10 * quiet_s, MOST_WAIT_S)
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST_IN_BATCH:
        raise PublishRefused(f"size={most!r:.100} is not a number of messages: use 1 to {MOST_IN_BATCH:,}")
    return check_group(Group(name, ceil(quiet_s * 1000), ceil(max_wait_s * 1000), most))


def with_limits(lanes: list[str], headers: Mapping[str, Any]) -> list[str]:
    """The keys with the rates and limits of the same headers. Raises PublishRefused unless they are of these keys."""
    rates, limits = headers.get(envelope.RATES) or {}, headers.get(envelope.LIMITS) or {}
    if not rates and not limits:
        return lanes
    if not isinstance(rates, Mapping) or not rates.keys() <= set(lanes):
        raise PublishRefused(
            f"lane_rates {rates!r:.100} are not rates of the lane keys of this message: use {{'customer:9': '10/m'}}"
        )
    if not isinstance(limits, Mapping) or not limits.keys() <= set(lanes) - rates.keys():
        raise PublishRefused(
            f"lane_limits {limits!r:.100} are not limits of lane keys of this message that have no rate: use "
            "{'customer:9': 3}"
        )
    return [
        Paced(key, rates[key]) if key in rates else Limited(key, limits[key]) if key in limits else key for key in lanes
    ]


def id_of(headers: Mapping[str, Any] | None) -> str | None:
    """The task id of a message with a `once`: a duplicate has that of the message that is kept, and so its result."""
    if not headers or envelope.LANE_KEYS not in headers or headers.get(envelope.ONCE) is None:
        return None
    scope, number = check_once(headers[envelope.ONCE])
    return str(uuid5(_ONCE_IDS, f"{scope}:{number}"))


def check_ordinary(queue: str, message: dict[str, Any]) -> None:
    """Raises PublishRefused for a message with lane keys, which would silently lose its order on an ordinary queue."""
    if envelope.LANE_KEYS in (message.get("headers") or {}):
        raise PublishRefused(
            f"{queue!r} is an ordinary queue, and this message has lane keys. Give the task a lane (@app.task(lane=…)) "
            "and name no queue, name a lane queue, or declare this one as such: "
            f"Queue({queue!r}, queue_arguments=lanes.QUEUE_ARGUMENTS)"
        )


def check_fanout(exchange: str, message: dict[str, Any]) -> None:
    """Raises PublishRefused for a message with lane keys, which every worker would run, without order."""
    if envelope.LANE_KEYS in (message.get("headers") or {}):
        raise PublishRefused(
            f"{exchange!r} is a fanout exchange, and this message has lane keys. Publish it to a lane queue: without "
            "its exchange, or to one of type direct"
        )


def row(queue: str, message: dict[str, Any]) -> NewMessage:
    """The row to append for a message, without its eta. Raises PublishRefused if it has no lane keys, or lane headers
    that a worker could not lease, or a group or `stops` and an eta, or a group and a limit.
    """
    given = message.get("headers") or {}
    if envelope.LANE_KEYS not in given:
        raise PublishRefused(
            f"{queue!r} is a lane queue: give the task a lane (@app.task(lane=…)), or pass the keys that order the "
            "message, headers=lanes.headers([…]), to apply_async or in task_routes; an empty list means no order"
        )
    if given.get("eta") and given.get(envelope.GROUP):
        raise PublishRefused(
            "a message of a group cannot have an eta or countdown: it joins its group when it is published. Leave out "
            "one of the two"
        )
    if given.get("eta") and given.get(envelope.STOPS):
        raise PublishRefused("a message with stops=True cannot have an eta or countdown: publish it when it is to stop")
    lanes, once, group = given[envelope.LANE_KEYS], given.get(envelope.ONCE), given.get(envelope.GROUP)
    check_lanes(lanes)
    lanes = with_limits(lanes, given)
    group = None if group is None else check_group(group)
    check_limits(lanes, group)
    return NewMessage(
        id=given.get("id") or message["properties"]["delivery_tag"],
        queue=queue,
        # With its eta, the message would wait in the memory of a worker.
        stored=envelope.pack({**message, "headers": {**given, "eta": None}} if given.get("eta") else message),
        lanes=lanes,
        once=None if once is None else check_once(once),
        group=group,
        # A task may publish a message with the id that runs: `self.replace()` does. A second attempt to publish is not
        # another message.
        after_run=not given.get(envelope.UNCERTAIN),
        stops=bool(given.get(envelope.STOPS)),
    )


def due_ms(message: dict[str, Any]) -> int | None:
    """When a message with an eta or countdown is due, ms since 1970; None: now. Raises PublishRefused if the eta is
    not a time.
    """
    eta = (message.get("headers") or {}).get("eta")
    if not eta:
        return None
    try:
        return ceil(maybe_make_aware(maybe_iso8601(eta)).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError) as error:
        raise PublishRefused(f"eta {eta!r} is not a time: {error}. Use an aware datetime") from error


def timer_of(task_id: str) -> tuple[str, str]:
    """The owner and the name of the timer of a message with an eta."""
    return f"task {task_id}", "eta"
