"""The `chatlanes` command, also `python -m chatlanes`.

Its sub-commands are programs of their own, which are imported when they are used. Those of Celery are the commands of
`celery -A chatlanes`.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

Arguments = tuple[str, ...]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chatlanes")
def main() -> None:
    """Every Telegram update one Celery task: in order per chat, none lost.

    To try a bot without a token:

    \b
        chatlanes sandbox --bot mybot:handle

    Settings (BOT, BOT_TOKEN, REDIS_URL, …) come from the environment, or from the file .env in this folder; `chatlanes
    settings` describes them. `chatlanes COMMAND --help` lists the options of a command.
    """


class Program(click.Command):
    """A command of another module: `path` is module:attribute. `needs` names the package of an extra of its name."""

    def __init__(self, name: str, path: str, short_help: str, needs: str = "") -> None:
        super().__init__(name, short_help=short_help)
        self._path, self._needs = path, needs

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        module, _, attribute = self._path.partition(":")
        if self._needs and find_spec(self._needs) is None:
            sys.exit(f"chatlanes {self.name} needs {self._needs}: pip install 'chatlanes[{self.name}]'")
        command: click.Command = getattr(import_module(module), attribute)
        return command.make_context(info_name, args, parent, **extra)


class CeleryProgram(click.Command):
    """A command of Celery, with all its arguments, `--help` included."""

    def __init__(self, name: str, short_help: str) -> None:
        super().__init__(
            name,
            callback=lambda arguments: _celery(name, arguments),
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
            short_help=short_help,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        )


def _celery(command: str, arguments: Arguments) -> None:
    from celery import maybe_patch_concurrency

    given = ["-A", "chatlanes", command, *arguments]
    with suppress(ModuleNotFoundError):  # of eventlet, which click refuses below
        maybe_patch_concurrency(["celery", *given])  # before anything else is imported: gevent replaces sockets
    from celery.bin.celery import celery

    from chatlanes.cli.celery_commands import describe_worker, flower_command

    describe_worker(celery.commands["worker"])
    if command == "flower":
        celery.add_command(flower_command(celery.commands["flower"]))
    if not {"-D", "--detach"}.isdisjoint(arguments):
        sys.argv[1:] = given  # what Celery runs in the background, as `python -m celery`
    names = click.get_current_context().help_option_names
    celery.main(given, prog_name="chatlanes", auto_envvar_prefix="CELERY", help_option_names=names)


for program in (
    CeleryProgram("flower", "Show workers and updates in the browser: Flower."),
    CeleryProgram("lanes", "Show the lanes, replay buried updates, pause and resume."),
    Program("poller", "chatlanes.poller.__main__:poller", "Fetch updates by long polling; `replay` reads a file."),
    Program(
        "sandbox",
        "chatlanes_sandbox.command:sandbox",
        "Run everything here, with a simulated Telegram.",
        "chatlanes_sandbox",
    ),
    Program("settings", "chatlanes.settings.__main__:settings", "Print the settings as Markdown or as a .env file."),
    Program("webhook", "chatlanes.poller.webhook.command:webhook", "Receive updates by webhook; `set` registers it."),
    CeleryProgram("worker", "Run the bot on updates: a Celery worker."),
):
    main.add_command(program)


if __name__ == "__main__":
    if not __package__:  # run as a file, as by SIGHUP: this folder would hide other packages, such as telegram
        del sys.path[0]
    main(prog_name="chatlanes")
