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
from celery_lanes.protocol import Group, NewMessage, Paced, check_group, check_lanes, check_once, check_paces, envelope

#: The namespace of the ids of messages with a `once`.
_ONCE_IDS = UUID("8f2b1c52-6a0e-4c7e-9d4b-3a1f5e70c911")


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
    if keys is not None:
        check_lanes(keys)
        check_paces(keys, group)
    remembered = None if once is None else list(check_once(once))
    found: dict[str, Any] = {**key_headers(keys), envelope.ONCE: remembered}
    if group is not None:
        found[envelope.GROUP] = list(check_group(group))
    if stops:
        found[envelope.STOPS] = True
    return found


def key_headers(keys: list[str] | None) -> dict[str, Any]:
    """The keys and their rates, as any program may write them. None: the keys are those of the task's lane."""
    rates = {str(key): key.rate for key in keys or () if isinstance(key, Paced)}
    if not keys or not rates:
        return {envelope.LANE_KEYS: keys}
    return {envelope.LANE_KEYS: [*map(str, keys)], envelope.RATES: rates}


def limit(key: str, *, rate: str) -> str:
    """A lane key whose lane has a rate: "10/m" is ten messages a minute (s, m or h), evenly spread, as in Celery's
    `rate_limit`, but over all workers: a message of it starts at least six seconds after the one before. A lane that
    waits for its rate takes no slot. A message keeps the rate with which it was published; one without a rate in the
    same lane neither waits nor counts. Raises PublishRefused.
    Use: `@app.task(lane=lanes.limit("customer:{customer}", rate="10/m"))`, or for one message
    `headers=lanes.headers([lanes.limit("customer:9", rate="10/m")])`.
    """
    check_lanes([key])
    return Paced(key, rate)


def _with_rates(lanes: list[str], rates: Any) -> list[str]:
    """Raises PublishRefused unless these are rates of these keys."""
    if not isinstance(rates, Mapping) or not rates.keys() <= set(lanes):
        raise PublishRefused(
            f"lane_rates {rates!r:.100} are not rates of the lane keys of this message: use {{'customer:9': '10/m'}}"
        )
    return [Paced(key, rates[key]) if key in rates else key for key in lanes]


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
            f"{queue!r} is an ordinary queue, and this message has lane keys. Declare the queue as a lane queue: "
            f"Queue({queue!r}, queue_arguments=lanes.QUEUE_ARGUMENTS)"
        )


def row(queue: str, message: dict[str, Any]) -> NewMessage:
    """The row to append for a message, without its eta. Raises PublishRefused if it has no lane keys, or lane headers
    that a worker could not lease, or a group and an eta.
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
    if given.get(envelope.RATES):
        lanes = _with_rates(lanes, given[envelope.RATES])
    return NewMessage(
        id=given.get("id") or message["properties"]["delivery_tag"],
        queue=queue,
        # With its eta, the message would wait in the memory of a worker.
        stored=envelope.pack({**message, "headers": {**given, "eta": None}} if given.get("eta") else message),
        lanes=lanes,
        once=None if once is None else check_once(once),
        group=None if group is None else check_group(group),
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
