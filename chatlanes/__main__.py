"""The `chatlanes` command, also `python -m chatlanes`.

Each sub-command takes the options of its program and ends with its exit code. Those of Celery are the
commands of `celery -A chatlanes`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

Arguments = tuple[str, ...]
#: Runs a command with its arguments. Returns its exit code, or a sentence that goes to stderr, with code 1.
Run = Callable[[Arguments], int | str]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chatlanes")
def main() -> None:
    """Every Telegram update one Celery task: in order per chat, none lost.

    `chatlanes COMMAND --help` lists the options of a command.
    """


def _command(name: str, help_text: str) -> Callable[[Run], click.Command]:
    """A sub-command that passes all its arguments, `--help` included, to its program."""

    def decorate(run: Run) -> click.Command:
        @main.command(
            name,
            help=help_text,
            short_help=help_text,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        )
        @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
        def forward(arguments: Arguments) -> None:
            sys.exit(run(arguments))

        return forward

    return decorate


def _celery(command: str, arguments: Arguments) -> int:
    from celery import maybe_patch_concurrency

    given = ["-A", "chatlanes", command, *arguments]
    maybe_patch_concurrency(["celery", *given])  # before anything else is imported: gevent replaces sockets
    from celery.bin.celery import celery

    if not {"-D", "--detach"}.isdisjoint(arguments):
        sys.argv[1:] = given  # what Celery runs in the background, as `python -m celery`
    code: int = celery.main(given, prog_name="chatlanes", auto_envvar_prefix="CELERY") or 0
    return code


@_command("worker", "Process updates: a Celery worker.")
def worker(arguments: Arguments) -> int:
    return _celery("worker", arguments)


@_command("flower", "Show workers and tasks in the browser: Flower.")
def flower(arguments: Arguments) -> int:
    return _celery("flower", arguments)


@_command("lanes", "Show the lanes, replay buried updates, pause and resume.")
def lanes(arguments: Arguments) -> int:
    return _celery("lanes", arguments)


@_command("poller", "Fetch updates by long polling; `replay FILE` reads a file.")
def poller(arguments: Arguments) -> int:
    from chatlanes.poller.__main__ import main as poll

    return poll(arguments)


@_command("webhook", "Receive updates by webhook; `set`, `info`, `delete` manage it.")
def webhook(arguments: Arguments) -> int:
    from chatlanes.poller.__main__ import main as poll

    return poll(("webhook", *arguments))


@_command("sandbox", "Run everything on this machine, with a simulated Telegram in the browser.")
def sandbox(arguments: Arguments) -> int | str:
    from chatlanes.sandbox.__main__ import main as run

    return run(arguments)


@_command("settings", "Print the settings as Markdown or as a .env file.")
def settings(arguments: Arguments) -> int:
    from chatlanes.settings.__main__ import main as show

    return show(arguments)


if __name__ == "__main__":
    if not __package__:  # run as a file, as by SIGHUP: this folder would hide other packages, such as telegram
        del sys.path[0]
    main(prog_name="chatlanes")
