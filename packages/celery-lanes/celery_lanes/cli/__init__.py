"""`celery -A … lanes …`: show the lanes, replay or drop dead letters, pause and resume.

Errors are one sentence, piped output is plain text, and nothing is deleted without confirmation. Importing this package
loads no sub-command, because every `celery` command imports it. A package that builds on lanes extends the commands by
a subclass of context.Context, which its app names (`lanes.install(app, commands="module:class")`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from celery_lanes.cli.group import Group

HELP = """Show the lanes, handle buried messages, pause and resume, check the deployment."""
CONTEXT = "celery_lanes.cli.context:Context"


class AppGroup(Group):
    """The commands of the app of a click context, built on first use."""

    def __init__(self, context: str = CONTEXT) -> None:
        super().__init__("lanes", help=HELP)
        self._path = context
        self._built: dict[str, Group] = {}

    def _group(self, ctx: click.Context | None) -> Group:
        path = getattr(_lanes_of(ctx), "commands", "") or self._path
        if path not in self._built:
            module, _, name = path.partition(":")
            self._built[path] = getattr(import_module(module), name).group()
        return self._built[path]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._group(ctx).list_commands(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return self._group(ctx).get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Here, so that the error of a misspelled command knows those that exist."""
        return self._group(ctx).resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._group(ctx).format_commands(ctx, formatter)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._group(ctx).format_help_text(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        self.callback = self._group(ctx).callback
        return super().invoke(ctx)


def _lanes_of(ctx: click.Context | None) -> Any:
    return getattr(getattr(ctx and ctx.obj, "app", None), "lanes", None)


lanes = AppGroup()

__all__ = ["AppGroup", "lanes"]
