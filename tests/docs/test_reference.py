"""The reference has every public name and every command. `make docs` fills it from docstrings and help texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

import chatlanes
from chatlanes import errors, lanes
from chatlanes.__main__ import main
from chatlanes.cli import lanes as lanes_command
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
TEXT = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
#: Their names are tested one by one.
MODULES = {"errors", "lanes"}


def is_error(name: str) -> bool:
    found = getattr(errors, name)
    return isinstance(found, type) and issubclass(found, errors.BotApiError)


@pytest.mark.parametrize("name", sorted(set(chatlanes.__all__) - MODULES))
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^::: chatlanes\.(bot\.current\.)?{name}$|`chatlanes\.{name}`", TEXT, re.MULTILINE)


@pytest.mark.parametrize("name", [name for name in vars(errors) if is_error(name)])
def test_every_error_of_a_call_is_in_the_reference(name: str) -> None:
    assert f"\n::: chatlanes.telegram.errors.{name}\n" in TEXT


@pytest.mark.parametrize("name", lanes.__all__)
def test_every_name_of_lanes_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^::: chatlanes\.lanes\.(install\.)?{name}$|`lanes\.{name}`", TEXT, re.MULTILINE)


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
