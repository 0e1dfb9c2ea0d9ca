"""`lanes pause` and `lanes resume`: a lane, a queue, or all queues of a group.

While paused, messages are still appended and running handlers finish, but none start. After a resume, each lane
continues in order.
"""

from __future__ import annotations

from typing import Any

import click

from celery_lanes.cli.context import CommandError, Context, OfLane, command, lane_argument, lanes
from celery_lanes.cli.formatting import echo
from celery_lanes.protocol.keys import group_of
from celery_lanes.transport.transport import LAST_ARGUMENT


@lanes.group()
def pause() -> None:
    """Stop handing out {message}s of a {lane}, a queue or a {group}. New ones come in, and running tasks finish."""


@lanes.group()
def resume() -> None:
    """Hand out {message}s again after a pause."""


_queue = click.argument("queue", metavar="QUEUE")
_name = click.argument("name", metavar="[NAME]", required=False)


@command("{lane}", pause, cls=OfLane)
@lane_argument
def pause_lane(lanes: Context, lane: str) -> None:
    """A lane by its key, such as {key}."""
    print_result(lanes.store.pause("lane", lane), f"paused {lane}", f"already paused: {lane}")


@command("{lane}", resume, cls=OfLane)
@lane_argument
def resume_lane(lanes: Context, lane: str) -> None:
    """A lane by its key, such as {key}."""
    print_result(lanes.store.resume("lane", lane), f"resumed {lane}", f"not paused: {lane}")


@command("queue", pause)
@_queue
def pause_queue(lanes: Context, queue: str) -> None:
    """One queue, such as {queue}."""
    lanes.check_queue(queue)
    print_result(lanes.store.pause("queue", queue), f"paused {queue}", f"already paused: {queue}")


@command("queue", resume)
@_queue
def resume_queue(lanes: Context, queue: str) -> None:
    """One queue, such as {queue}."""
    print_result(lanes.store.resume("queue", queue, [queue]), f"resumed {queue}", f"not paused: {queue}")


@command("{group}", pause)
@_name
def pause_group(lanes: Context, name: str | None) -> None:
    """All queues of a {group}. NAME is required if there are several {group}s."""
    group = _group(lanes, name)
    name = lanes.names[group]
    print_result(lanes.store.pause("group", group), f"paused {name}", f"already paused: {name}")


@command("{group}", resume)
@_name
def resume_group(lanes: Context, name: str | None) -> None:
    """All queues of a {group}. NAME is required if there are several {group}s."""
    group = _group(lanes, name)
    name, queues = lanes.names[group], [queue for _, queue in lanes.queues if group_of(queue) == group]
    print_result(lanes.store.resume("group", group, queues), f"resumed {name}", f"not paused: {name}")


def _group(lanes: Context, name: str | None) -> str:
    words, groups = lanes.words, {shown: group for group, shown in reversed(lanes.names.items())}
    if name is not None and name in groups:
        return groups[name]
    if name is None and len(first := set(groups.values()) - _last(lanes)) == 1:
        return first.pop()
    known = ", ".join(reversed(groups))
    if name is None:
        raise CommandError(f"name one of the {words.group}s: {known}")
    raise CommandError(f"there is no {words.group} {name}: the {words.group}s are {known}")


def _last(lanes: Context) -> set[str]:
    """The groups of queues that are read last. They are paused only by their names."""
    declared = lanes.app.amqp.queues
    return {group for group, queue in lanes.queues if declared[queue].queue_arguments.get(LAST_ARGUMENT)}


def print_result(is_done: bool, done: str, otherwise: str) -> Any:
    echo(done if is_done else otherwise)
