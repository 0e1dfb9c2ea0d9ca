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


class _LazyGroup(click.Group):
    """The group of command.py with its sub-commands, imported on first use."""

    @cached_property
    def _group(self) -> click.Group:
        for module in SUB_COMMANDS:
            import_module(f"chatlanes.cli.{module}")
        group: click.Group = import_module("chatlanes.cli.command").lanes
        return group

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._group.list_commands(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return self._group.get_command(ctx, name)

    def invoke(self, ctx: click.Context) -> Any:
        self.callback = self._group.callback
        return super().invoke(ctx)


lanes = _LazyGroup(name="lanes", help="Show the lanes, handle buried updates, pause and resume, check the deployment.")

__all__ = ["lanes"]
