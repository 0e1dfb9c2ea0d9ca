"""The reference has every public name and every command. `make docs` fills it from docstrings and help texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace

import click
import pytest

import celery_lanes as lanes
import chatlanes
from chatlanes import errors
from chatlanes.__main__ import main
from chatlanes.bot.context import Context
from chatlanes.cli.commands import BotCommands
from chatlanes.settings.table import rows
from docs.site import settings
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
TEXT = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
#: Their names are tested one by one.
MODULES = {"errors", "lanes"}
#: Members of Context that a handler does not need.
FOR_ADAPTERS = {"api", "broadcasting", "has_read_session", "interrupts", "plan", "stage", "stored"}


def is_error(name: str) -> bool:
    found = getattr(errors, name)
    return isinstance(found, type) and issubclass(found, errors.BotApiError)


@pytest.mark.parametrize("name", sorted(set(chatlanes.__all__) - MODULES))
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^::: chatlanes\.{name}$|`chatlanes\.{name}`", TEXT, re.MULTILINE)


def test_every_member_of_the_context_is_in_a_group() -> None:
    page = (REFERENCE / "context.md").read_text()
    grouped = re.findall(r"^::: chatlanes\.Context\.(\w+)$", page.partition("\n## ")[2], re.MULTILINE)
    members = set(dir(Context)) | set(Context.__annotations__)
    public = {name for name in members if not name.startswith("_")}
    assert sorted(grouped) == sorted(public - FOR_ADAPTERS)


def test_the_reference_has_an_index() -> None:
    index = (REFERENCE / "index.md").read_text()
    pages = {page.name for page in REFERENCE.glob("*.md")} - {"index.md"}
    assert pages <= set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert "- reference/index.md\n" in (ROOT / "mkdocs.yml").read_text()


def test_each_setting_is_a_section_of_the_site() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="settings.md"), meta={})
    shown = settings.on_page_markdown((ROOT / "docs/settings.md").read_text(), page, None, None)
    assert re.findall(r"^### (\w+)$", shown, re.MULTILINE) == [row.name for row in rows().values()]
    assert "\n|" not in shown
    assert page.meta == {"search": {"boost": settings.BOOST}}


@pytest.mark.parametrize("name", [name for name in vars(errors) if is_error(name)])
def test_every_error_of_a_call_is_in_the_reference(name: str) -> None:
    assert f"\n::: chatlanes.telegram.errors.{name}\n" in TEXT


@pytest.mark.parametrize("name", lanes.__all__)
def test_every_name_of_lanes_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^::: celery_lanes\.(install\.)?{name}$|`lanes\.{name}`", TEXT, re.MULTILINE)


def test_every_command_is_in_the_reference() -> None:
    shown = set(re.findall(r"<!-- help: (.*) -->", TEXT))
    commands = {f"chatlanes {name}" for name in main.commands} | set(_leaves("chatlanes lanes", BotCommands.group()))
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
