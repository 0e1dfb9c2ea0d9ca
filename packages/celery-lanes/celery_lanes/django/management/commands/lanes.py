"""`manage.py lanes …`: the commands of `celery -A … lanes`."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery import current_app
from django.core.management.base import BaseCommand

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

    def print_help(self, prog_name: str, subcommand: str) -> None:
        self._run(["--help"], Path(prog_name).name)

    def _run(self, words: list[str], program: str) -> Any:
        app = current_app._get_current_object()
        load_tasks(app)
        lanes.main(words, prog_name=f"{program} lanes", obj=SimpleNamespace(app=app))
