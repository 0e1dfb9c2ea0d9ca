"""`celery -A … lanes …`: show the lanes, replay or drop dead letters, pause and resume.

Errors are one sentence, piped output is plain text, and nothing is deleted without confirmation. Importing this package
loads no sub-command, because every `celery` command imports it. A package that builds on lanes extends the commands by
a subclass of context.Context, which its app names (`lanes.install(app, commands="module:class")`).
"""

from __future__ import annotations

from importlib import import_module

import click

from celery_lanes.cli.group import Group

CONTEXT = "celery_lanes.cli.context:Context"


class AppGroup(Group):
    """The commands of the app of its click context, which click passes before it needs any of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        app_lanes = getattr(getattr(ctx.obj, "app", None), "lanes", None)
        module, _, name = (getattr(app_lanes, "commands", "") or CONTEXT).partition(":")
        made = getattr(import_module(module), name).group()
        self.commands, self.callback, self.help = made.commands, made.callback, made.help
        return super().parse_args(ctx, args)


lanes = AppGroup("lanes", help="Show the lanes, handle buried messages, pause and resume, check the deployment.")
