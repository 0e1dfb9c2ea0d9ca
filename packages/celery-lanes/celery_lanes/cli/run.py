"""Runs a command of `celery -A … lanes` inside a web server, for celery_lanes.django and celery_lanes.fastapi.

Keys, queues and groups are those of Redis, also in the app of a package that extends the commands.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from celery_lanes.cli.context import Context
from celery_lanes.cli.formatting import capturing
from celery_lanes.cli.group import Group

#: The command of an action, before `--` and what it acts on.
ACTIONS = {
    "replay": ("dead", "replay"),
    "drop": ("dead", "drop", "--yes"),
    "cancel": ("timers", "cancel"),
    **{f"{verb} {kind}": (verb, kind) for verb in ("pause", "resume") for kind in ("lane", "queue", "group")},
}


def run(app: Any, *words: str) -> list[str]:
    """The output of the command: sentences, or with `--json` JSON texts. Raises click.ClickException with a sentence:
    NoAnswerError, CommandError or, for invalid words, UsageError.
    """
    load_tasks(app)
    group = _group()
    with capturing() as texts, group.make_context("lanes", list(words), obj=SimpleNamespace(app=app)) as context:
        group.invoke(context)
    return texts


def act(app: Any, action: str, *targets: str) -> str:
    """Run a command of ACTIONS on these ids, or this lane, queue or group. Returns a sentence. Raises as `run` does."""
    return " ".join(run(app, *ACTIONS[action], "--", *targets))


@cache
def load_tasks(app: Any) -> None:
    """Import the tasks of the app, as `celery -A` does, because a task may name the queue of its lanes."""
    app.loader.import_default_modules()


@cache
def _group() -> Group:
    return Context.group()
