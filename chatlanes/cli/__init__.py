"""`chatlanes lanes …`: show the lanes, replay or drop buried updates, pause and resume.

Errors are one sentence, piped output is plain text, and nothing is deleted without confirmation. Importing this package
loads neither settings nor sub-commands, because every `celery` command imports it.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import click

SUB_COMMANDS = ("broadcast", "chat", "check", "dead", "metrics", "pausing", "schedules", "status", "timers")


class Group(click.Group):
    """Shows the whole first sentence of each sub-command, which click would cut. Its sub-groups do, too."""

    group_class = type

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=1000)) for name in names])


class _LazyGroup(Group):
    """The group of command.py with its sub-commands, imported on first use."""

    @cached_property
    def _group(self) -> click.Group:
        for module in SUB_COMMANDS:
            import_module(f"chatlanes.cli.{module}")
        group: click.Group = import_module("chatlanes.cli.command").lanes
        self.commands = group.commands
        return group

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._group.list_commands(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return self._group.get_command(ctx, name)

    def invoke(self, ctx: click.Context) -> Any:
        self.callback = self._group.callback
        return super().invoke(ctx)


HELP = """Show the lanes, handle buried updates, pause and resume, check the deployment.

`chatlanes lanes` takes REDIS_URL, BOT_TOKEN and all other settings from the environment, or from the file .env in this
folder. Without them it uses the sandbox that runs in this folder. `celery -A yours lanes` is for an app of your own.
"""

lanes = _LazyGroup(name="lanes", help=HELP)

__all__ = ["lanes"]
