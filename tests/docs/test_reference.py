"""The reference has every public name and every command. `make docs` fills it from docstrings and help texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

import chatlanes
from chatlanes import lanes
from chatlanes.__main__ import main
from chatlanes.cli import lanes as lanes_command
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
TEXT = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
#: The errors of lanes are members of the module that the page shows.
MODULES = {"errors", "lanes"}


@pytest.mark.parametrize("name", sorted(set(chatlanes.__all__) - MODULES))
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^::: chatlanes\.{name}$|`chatlanes\.{name}`", TEXT, re.MULTILINE)


@pytest.mark.parametrize("name", lanes.__all__)
def test_every_name_of_lanes_is_in_the_reference(name: str) -> None:
    is_error = isinstance(getattr(lanes, name), type) and issubclass(getattr(lanes, name), lanes.LanesError)
    assert is_error or re.search(rf"^::: chatlanes\.lanes\.{name}$|`lanes\.{name}`", TEXT, re.MULTILINE)


def test_every_command_is_in_the_reference() -> None:
    shown = set(re.findall(r"<!-- help: (.*) -->", TEXT))
    commands = {f"chatlanes {name}" for name in main.commands} | set(_leaves("chatlanes lanes", lanes_command))
    assert commands <= shown


def _leaves(path: str, command: click.Command) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found
        yield from _leaves(f"{path} {name}", found)
