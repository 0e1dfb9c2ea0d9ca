"""`lanes dead`: list, show, replay and drop buried messages.

Replayed messages join their lanes in their original order. Nothing is dropped without confirmation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import groupby
from typing import Any

import click

from celery_lanes.cli.context import (
    CommandError,
    Context,
    command,
    group_option,
    in_order,
    lane_option,
    lanes,
    wanted,
    with_size,
)
from celery_lanes.cli.formatting import echo, moment, one_line, table
from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Record

#: Characters of an error in the list, and above its traceback, which has the whole text.
SHOWN, MOST_OF_AN_ERROR = 60, 2_000


@lanes.group()
def dead() -> None:
    """List, show, replay and drop buried {message}s."""


@command("list", dead)
@lane_option
@group_option
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most this many, the last ones."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_(lanes: Context, lane: str | None, group: str | None, limit: int, as_json: bool) -> None:
    """List buried {message}s, the newest last, each with its last error."""
    client, buried_ms = lanes.client, inspection.dead(lanes.client)
    is_wanted = wanted(lanes, lane, group)
    found = [record for record in inspection.records(client, buried_ms) if is_wanted(record)]
    titles = inspection.titles(client, [record.id for record in found[-limit:]], lanes.words.task)
    if len(found) > limit and not as_json:
        click.echo(f"the last {limit} of {len(found):,} (--limit)")
    rows = []
    for record in found[-limit:]:
        last = (inspection.problems(client, record.id) or [{}])[-1]
        error = f"{last.get('type', '')}: {last.get('message', '')}"
        if as_json:
            echo(json.dumps(_as_json(lanes, record, buried_ms[record.id], titles[record.id], last)))
        else:
            rows.append([record.id, moment(buried_ms[record.id]), with_size(titles[record.id], record), _line(error)])
    if rows:
        click.echo(table(["id", "buried", lanes.words.message, "error"], rows, left=range(4)))
    elif not as_json:
        is_any = lane is None and group is None
        click.echo("nothing is buried" if is_any else f"no buried {lanes.words.message} matches")


@command("show", dead)
@click.argument("message_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show(lanes: Context, message_id: str, as_json: bool) -> None:
    """Show one buried {message}: its lanes, its errors with tracebacks, and its content.

    Attempts that failed in the same way have one traceback. If it was collected with others, all of them are shown:
    they are one dead letter.
    """
    client = lanes.client
    record = _buried(lanes, message_id)
    buried_ms = inspection.dead(client).get(record.id, 0)
    title = inspection.titles(client, [record.id], lanes.words.task)[record.id]
    problems, calls = inspection.problems(client, record.id), inspection.calls(client, record.id, lanes.words.task)
    if as_json:
        run = {
            **_as_json(lanes, record, buried_ms, title, (problems or [{}])[-1]),
            "errors": problems,
            lanes.words.message: calls[0],
            "collected": calls[1:],
        }
        echo(json.dumps({**run, "lanes": record.lanes, "queue": record.queue}, indent=2))
        return
    echo(f"{record.id}  {title}")
    if record.size > 1:
        echo(f"one run of {record.size} {lanes.words.message}s: {', '.join(lanes.ids_of(record))}")
    echo(f"appended {moment(record.appended_us / 1000)}, buried {moment(buried_ms)}, queue {record.queue}")
    failures = f"{_counted(len(problems), 'error')}, {_counted(record.died, 'death')}"
    echo(f"lanes {', '.join(record.lanes) or '(none)'}; {failures}")
    for traceback, same in groupby(problems, lambda problem: str(problem.get("traceback", "")).rstrip()):
        click.echo()
        for problem in same:
            error = f"{problem.get('type')}: {problem.get('message')}"
            echo(f"{moment(problem.get('at_ms', 0))}  {one_line(error, MOST_OF_AN_ERROR)}")
        echo(traceback)
    for call in calls:
        echo(f"\n{json.dumps(call, indent=2, ensure_ascii=False)}")


@command("replay", dead)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All buried {message}s, or all that --{lane} and --{group} select.")
@lane_option
@group_option
def replay(lanes: Context, ids: tuple[str, ...], is_all: bool, lane: str | None, group: str | None) -> None:
    """Put buried {message}s back at the end of their lanes, in their original order, with attempts and deaths reset."""
    found = _chosen(lanes, ids, is_all=is_all, lane=lane, group=group)
    _each(lanes, found, lanes.store.replay, "replayed")


@command("drop", dead)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All buried {message}s, or all that --{lane} and --{group} select.")
@lane_option
@group_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def drop(lanes: Context, ids: tuple[str, ...], is_all: bool, lane: str | None, group: str | None, yes: bool) -> None:
    """Delete buried {message}s permanently."""
    found = _chosen(lanes, ids, is_all=is_all, lane=lane, group=group)
    if found and not yes:
        _ask(f"Delete {_many(lanes, sum(record.size for record in found))} permanently?")
    _each(lanes, found, lanes.store.drop, "dropped")


def _chosen(lanes: Context, ids: tuple[str, ...], *, is_all: bool, lane: str | None, group: str | None) -> list[Record]:
    """The messages that the arguments select. Raises UsageError if the selection is ambiguous, CommandError for an id
    that is not buried.
    """
    if bool(ids) == is_all:
        raise click.UsageError("give either IDs (`lanes dead list` shows them) or --all")
    words = lanes.words
    if ids and (lane or group):
        raise click.UsageError(f"--{words.lane} and --{words.group} require --all")
    if ids:
        runs = {record.id: record for record in (_buried(lanes, message_id) for message_id in ids)}
        return in_order(runs.values())
    is_wanted = wanted(lanes, lane, group)
    return in_order(
        record for record in inspection.records(lanes.client, inspection.dead(lanes.client)) if is_wanted(record)
    )


def _buried(lanes: Context, message_id: str) -> Record:
    """The dead letter with this message. Raises CommandError."""
    record = lanes.run_of(message_id)
    if record is None:
        raise CommandError(f"{message_id} is not buried: there is no such message; it was settled or never appended")
    if record.state != "buried":
        if record.id != message_id:
            raise CommandError(
                f"{message_id} is not buried: it was collected with {record.id}, which is {record.state}"
            )
        raise CommandError(f"{message_id} is not buried: it is {record.state}")
    return record


def _each(lanes: Context, found: list[Record], verb: Callable[[str], bool], done: str) -> None:
    """Apply `verb` to each message. A message that another command has handled meanwhile is not counted."""
    count = sum(record.size for record in found if verb(record.id))
    echo(f"{done} {_many(lanes, count)}" if found else "nothing is buried")


def _ask(question: str) -> None:
    if sys.stdin is None or not sys.stdin.isatty():  # None: it is closed
        raise CommandError(f"{question} There is no terminal to confirm on: use --yes")
    click.confirm(question, abort=True)


def _many(lanes: Context, count: int) -> str:
    return _counted(count, lanes.words.message)


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def _as_json(lanes: Context, record: Record, buried_ms: int, title: str, last: dict[str, Any]) -> dict[str, Any]:
    counts = {"failed": record.failed, "died": record.died}
    error = {"type": last.get("type"), "message": last.get("message")} if last else None
    return {"id": record.id, "buried_ms": buried_ms, lanes.words.message: title, **counts, "error": error}
