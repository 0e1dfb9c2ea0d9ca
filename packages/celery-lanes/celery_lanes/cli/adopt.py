"""`lanes adopt` moves the backlog of an ordinary queue into lanes, `lanes move-out` the other way."""

from __future__ import annotations

import signal
import time
from collections import Counter

import click

from celery_lanes.cli.context import CommandError, Context, command
from celery_lanes.cli.departure import Departure
from celery_lanes.cli.formatting import age, echo, number
from celery_lanes.protocol import keys
from celery_lanes.transport.adoption import Adoption, Wanted

#: The most reasons shown why messages stay, and places for each.
MOST_REASONS, MOST_PLACES = 20, 3
#: With --follow, how long to wait before the lists are read again; at least as long as reading them took.
PAUSE_S = 0.2


@command("adopt")
@click.argument("queue", metavar="QUEUE")
@click.option(
    "--key",
    "lane",
    multiple=True,
    metavar="KEY",
    help="A lane key for each {message}, with its arguments in braces, as in @app.task(lane=…); several times for "
    "several keys. Default: the keys of the lane of its task or route.",
)
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="Only {message}s of this task; several times.")
@click.option("--to", metavar="QUEUE", help="This lane queue. Default: that of the task.")
@click.option("--unacked", is_flag=True, help="Also {message}s that dead workers have not acknowledged.")
@click.option("--follow", is_flag=True, help="Continue until Ctrl-C or SIGTERM, with new {message}s.")
@click.option("--dry-run", "dry", is_flag=True, help="Change nothing; show what would happen.")
def adopt(
    lanes: Context,
    queue: str,
    lane: tuple[str, ...],
    tasks: tuple[str, ...],
    to: str | None,
    unacked: bool,
    follow: bool,
    dry: bool,
) -> None:
    """Move the backlog of an ordinary queue into lanes. It may be killed and started again. Code 1: some could not be
    moved.
    """
    lanes.app.loader.import_default_modules()
    _check_ordinary(lanes, queue)
    if to is not None:
        lanes.check_queue(to)
    adoption = Adoption(lanes.app, queue, Wanted(lane, tasks, to))
    _put_back(adoption, unacked=unacked, dry=dry)
    before = adoption.size()
    echo(f"before: {number(before)} in {queue}")
    begun_s = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for a command in the background
    try:
        adoption.run(dry=dry)
        while follow and not dry:
            time.sleep(max(PAUSE_S, time.monotonic() - begun_s))
            begun_s = time.monotonic()
            adoption.run()
    except KeyboardInterrupt:
        echo("interrupted")
    has_problem = _show(adoption, dry=dry)
    if not dry:
        _show_sum(adoption, before)
    for paused in sorted({into for _, into in adoption.tally.moved}):
        _show_paused(lanes, paused)
    if has_problem:
        click.get_current_context().exit(1)


def _check_ordinary(lanes: Context, queue: str) -> None:
    if not queue or lanes.client.type(queue) not in (b"none", b"list"):
        raise CommandError(f"{queue!r} cannot be a queue of Redis: name an ordinary one")


def _put_back(adoption: Adoption, *, unacked: bool, dry: bool) -> None:
    found = adoption.unacknowledged()
    back = adoption.abandoned(found) if unacked else adoption.overdue(found)
    if back:
        adoption.put_back([] if dry else back)
        said = "of no worker that answers" if unacked else "taken longer ago than the visibility timeout"
        echo(f"{'would be ' * dry}put back into {adoption.queue}: {number(len(back))}, {said}")
    if left := len(found) - len(back):
        timeout = age(adoption.channel.visibility_timeout)
        echo(
            f"not acknowledged: {number(left)}, which workers have taken. They run there; if a worker has died, they "
            f"are back in {adoption.queue} {timeout} after it took them, or with --unacked"
        )


def _show(adoption: Adoption, *, dry: bool) -> bool:
    """True if something could not be moved."""
    tally = adoption.tally
    for (task, queue), moved in sorted(tally.moved.items()):
        echo(f"{'would be ' * dry}moved: {number(moved)} of {task} into {queue}")
    if tally.scheduled:
        echo(f"of these, {number(tally.scheduled)} join their lanes at their eta")
    if tally.known:
        echo(f"removed: {number(tally.known)}, whose ids wait already")
    reasons, places = Counter[str](), dict[str, list[str]]()
    for name, stays in tally.stays.items():
        for error, index in stays:
            reasons[error.reason] += 1
            if error.is_problem:
                places.setdefault(error.reason, []).append(f'LINDEX "{name.encode("unicode_escape").decode()}" {index}')
    for reason, count in reasons.most_common(MOST_REASONS):
        where = ", ".join(places.get(reason, [])[:MOST_PLACES])
        more = ", …" if len(places.get(reason, [])) > MOST_PLACES else ""
        echo(f"{'would stay' if dry else 'stayed'}: {number(count)}: {reason}{where and f' ({where}{more})'}")
    if len(reasons) > MOST_REASONS:
        echo(f"and {number(sum(reasons.values()) - sum(n for _, n in reasons.most_common(MOST_REASONS)))} more")
    return bool(places)


def _show_sum(adoption: Adoption, before: int) -> None:
    """Show the new size of the queue. It differs from the sum if workers or publishers used the queue meanwhile."""
    after = adoption.size()
    others = after - (before - adoption.tally.gone)
    said = f"{number(abs(others))} {'taken by workers' if others < 0 else 'more were published'} meanwhile"
    echo(f"after: {number(after)} in {adoption.queue}{f'; {said}' if others else ''}")


@command("move-out")
@click.argument("queue", metavar="QUEUE")
@click.option("--to", metavar="QUEUE", required=True, help="An ordinary queue.")
def move_out(lanes: Context, queue: str, to: str) -> None:
    """Pause a lane queue and move its waiting {message}s to an ordinary queue, in the order of their lanes. It may be
    killed and started again.
    """
    lanes.app.loader.import_default_modules()
    lanes.check_queue(queue)
    if to in [name for _, name in lanes.queues]:
        raise CommandError(f"{to} is a lane queue: name an ordinary one")
    _check_ordinary(lanes, to)
    departure = Departure(lanes.app, queue, to)
    departure.run()
    echo(f"moved: {number(departure.moved + departure.timers)} from {queue} to {to}")
    if departure.timers:
        echo(f"of these, {number(departure.timers)} run at their eta")
    if departure.stays:
        states = ", ".join(f"{number(count)} {state}" for state, count in departure.stays.most_common())
        echo(f"stayed: {states}: with workers, or behind those. Run this again when they have ended")
    if dead := departure.dead():
        echo(f"stayed: {number(dead)} in the dead letters: `lanes dead replay` puts them back into their lanes")
    _show_paused(lanes, queue)


def _show_paused(lanes: Context, queue: str) -> None:
    if lanes.client.hexists(keys.PAUSED, f"queue:{queue}"):
        echo(f"{queue} is paused: no worker starts what is there until `lanes resume queue {queue}`")
