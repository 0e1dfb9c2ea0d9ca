"""`lanes outbox`: publish the entries of the app's outbox tables."""

from __future__ import annotations

import time

import click

from celery_lanes.cli.context import CommandError, Context, command, lanes
from celery_lanes.cli.formatting import echo
from celery_lanes.outbox import MOST, Table, publish, tables

EVERY_S = 1.0


@command("outbox", lanes)
@click.option("--once", is_flag=True, help="Publish the waiting tasks, and exit.")
def outbox(lanes: Context, once: bool) -> None:
    """Publish the tasks that processes which died, or an outage of Redis, have left in the outbox. Runs until it is
    stopped; it may be killed, and run several times.
    """
    lanes.app.loader.import_default_modules()  # which sets up Django
    found = [each for each in tables if each.app is lanes.app]
    if not found:
        raise CommandError(
            "this app has no outbox: add celery_lanes.django.outbox to INSTALLED_APPS, or make a "
            "celery_lanes.sqlalchemy.Outbox in a module that the app imports"
        )
    said = ""
    while True:
        sentence = _pass(found)
        if once and sentence:
            raise CommandError(sentence)
        if once:
            return
        if sentence != said:
            echo(sentence or "the outbox is published again")
        said = sentence
        time.sleep(EVERY_S)


def _pass(found: list[Table]) -> str:
    """Publish all waiting entries. Returns a sentence about the problem, empty if there is none."""
    for table in found:
        try:
            table.refresh()
            while publish(table) == MOST:
                pass
            if failed := table.count_failed():
                return f"entries of the outbox that cannot be published: {failed}; their column error says why"
        except Exception as error:  # of Redis, or of any database
            return f"the outbox cannot be published now: {error}"
    return ""
