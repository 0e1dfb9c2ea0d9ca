"""The command group, and the context and error handling of its sub-commands.

Exit codes: 0; 1 if a check fails or nothing is found; 2 for an invalid argument.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any
from urllib.parse import urlsplit

import click
from redis import Redis
from redis.exceptions import ConnectionError, RedisError, TimeoutError  # noqa: A004

from chatlanes.cli import Group
from chatlanes.lanes.errors import LanesError, complaint
from chatlanes.lanes.protocol.keys import group_of
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.transport.channel import LANES_ARGUMENT
from chatlanes.logs.foreign_text import visible
from chatlanes.settings import Settings, running_sandbox


class CommandError(click.ClickException):
    """Ends the command with one sentence and exit code 1."""

    def show(self, file: Any = None) -> None:
        click.echo(visible(self.format_message()), file=sys.stderr)


@dataclass
class CommandContext:
    """The app that a command works on, and its Redis."""

    app: Any

    @cached_property
    def store(self) -> Store:
        store: Store = self.app.lanes.store
        return store

    @property
    def client(self) -> Redis:
        return self.store.client

    @property
    def place(self) -> str:
        """The address of Redis, without its password."""
        connection = self.app.connection_for_write()
        nodes = [urlsplit(url) for url in connection.alt or [connection.as_uri(include_password=True)]]
        return ", ".join(f"{node.hostname}:{node.port or connection.default_port}" for node in nodes)

    @cached_property
    def queues(self) -> list[tuple[str, str]]:
        """(group, queue) of each lane queue of the app."""
        declared = [
            each for each in self.app.conf.task_queues or () if (each.queue_arguments or {}).get(LANES_ARGUMENT)
        ]
        return [(group_of(queue.name), queue.name) for queue in declared]

    @cached_property
    def names(self) -> dict[str, str]:
        """The display name of each queue group: with BOTS, the name of its bot."""
        named = {bot.queue_group: bot.bot_name for bot in self.bots() if bot.bot_name}
        return {group: named.get(group, group) for group, _ in self.queues}

    @cached_property
    def bot_ids(self) -> dict[int, str]:
        """Bot id -> display name of its queue group; only bots whose tokens are known here."""
        return {bot.bot_id: self.names[bot.queue_group] for bot in self.bots() if bot.bot_token is not None}

    def settings(self) -> Settings | None:
        """The settings of the chatlanes app; None for any other app, because lanes work with every Celery app."""
        if self.app.main != "chatlanes":
            return None
        from chatlanes.tasks.settings import settings

        return settings()

    def bots(self) -> tuple[Settings, ...]:
        found = self.settings()
        return found.served if found else ()

    def no_answer(self, error: RedisError) -> str:
        """The sentence for a Redis that does not answer. For the chatlanes app it says where the address comes from."""
        sentence = f"Redis at {self.place} does not answer: {complaint(error).rstrip('.')}."
        settings = self.settings()
        if settings is None or type(error) not in (ConnectionError, TimeoutError):  # not one that asks for a password
            return sentence
        sandbox = running_sandbox.find().get("REDIS_URL", settings.redis_url)
        if sandbox != settings.redis_url:
            return f"{sentence} A sandbox runs in this folder, at {sandbox}: unset REDIS_URL and BOT_TOKEN to use it"
        return f"{sentence} Start Redis there, set REDIS_URL, or change to the folder in which your sandbox runs"


@click.group(name="lanes", cls=Group)
@click.pass_context
def lanes(ctx: click.Context) -> None:
    """Show the lanes, handle buried updates, pause and resume, check the deployment."""
    app = ctx.obj.app
    if not hasattr(app, "lanes"):
        raise CommandError(
            "this app has no lanes: call chatlanes.lanes.install(app) where it is created, or use `chatlanes lanes`"
        )
    if app.main == "chatlanes":
        os.environ.update(running_sandbox.supplied())  # before the app reads its settings
    ctx.obj = CommandContext(app)


def command(name: str, group: click.Group = lanes, **options: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorates a function of CommandContext and its own arguments as a sub-command."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(ctx: click.Context, **arguments: Any) -> None:
            try:
                function(ctx.obj, **arguments)
            except RedisError as error:
                raise CommandError(ctx.obj.no_answer(error)) from None
            except LanesError as error:
                raise CommandError(str(error)) from None

        return group.command(name, **options)(click.pass_context(run))

    return decorate
