"""`chatlanes lanes …`: see what waits in the lanes, mend what was buried, stop and go on.

Promises sentences instead of tracebacks, plain text when piped, and to ask before anything is thrown away. Importing it
reads no setting and none of the sub-commands: every `celery` command, and so every worker, imports it.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import click

SUB_COMMANDS = ("chat", "check", "dead", "losses", "metrics", "pausing", "status")


class _Later(click.Group):
    """The group of command.py with its sub-commands, imported when somebody asks for them."""

    @cached_property
    def _now(self) -> click.Group:
        for module in SUB_COMMANDS:
            import_module(f"chatlanes.cli.{module}")
        group: click.Group = import_module("chatlanes.cli.command").lanes
        return group

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._now.list_commands(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return self._now.get_command(ctx, name)

    def invoke(self, ctx: click.Context) -> Any:
        self.callback = self._now.callback
        return super().invoke(ctx)


lanes = _Later(name="lanes", help="The lanes: what waits, what was buried, who works; stop and go on.")

__all__ = ["lanes"]
