"""`manage.py lanes …`: the commands of `celery -A … lanes`."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery import current_app
from click import ClickException
from django.core.management.base import BaseCommand, CommandError

from celery_lanes.cli import lanes
from celery_lanes.cli.run import load_tasks


class Command(BaseCommand):
    help = "Shows the lanes, handles buried messages, pauses and resumes: the commands of `celery -A … lanes`."

    def run_from_argv(self, argv: list[str]) -> None:
        """manage.py itself reads these two options, and leaves them among the words."""
        parser = ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--settings")
        parser.add_argument("--pythonpath")
        self._run(parser.parse_known_args(argv[2:])[1], Path(argv[0]).name)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("words", nargs=REMAINDER)

    def handle(self, *_: Any, words: list[str], **__: Any) -> None:
        """`call_command("lanes", "status")`. Raises CommandError."""
        try:
            with redirect_stdout(self.stdout):
                code = self._run(words, "manage.py", standalone_mode=False)
        except ClickException as error:
            raise CommandError(error.format_message()) from None
        if code:
            raise CommandError(f"lanes {' '.join(words)} ended with code {code}", returncode=code)

    def print_help(self, prog_name: str, subcommand: str) -> None:
        self._run(["--help"], Path(prog_name).name)

    def _run(self, words: list[str], program: str, **how: Any) -> Any:
        app = current_app._get_current_object()
        load_tasks(app)
        return lanes.main(words, prog_name=f"{program} lanes", obj=SimpleNamespace(app=app), **how)
