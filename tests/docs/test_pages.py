"""What the pages say leads somewhere: links, imports, and the command behind each figure."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.docs.pages import PAGES, ROOT, Block, anchors, blocks, links, sections

#: A rate, a multiple or a quantile: a measured figure.
MEASURED = re.compile(r"\d/s\b|\d ×|\bp99\b|[Mm]edian")
MEASURES = re.compile(r"make (bench|chaos|referee)|ARGS=\"--only|bench\.md|\bchatlanes lanes")

#: The entry points of a clone are not installed: a page that imports more of them than there is must fail.
OURS = {"celery_lanes", "chatlanes", "chatlanes_sandbox", "tasks", "poller", "settings"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_found_from_the_readme() -> None:
    found, to_read = set(), [ROOT / "README.md"]
    while to_read:
        page = to_read.pop()
        if page in found:
            continue
        found.add(page)
        targets = ((page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link)
        to_read += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert set(PAGES) <= found


@pytest.mark.parametrize("block", [block for block in blocks() if block.kind == "python"], ids=str)
def test_python_examples_parse_and_their_imports_exist(block: Block) -> None:
    indent = len(block.text) - len(block.text.lstrip(" "))
    lines = [line[indent:] for line in block.text.splitlines()]
    for node in ast.walk(ast.parse("\n".join(lines), mode="exec", feature_version=(3, 11))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            module = importlib.import_module(str(node.module))
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            for name in missing:
                importlib.import_module(f"{node.module}.{name}")


@pytest.mark.parametrize("block", [block for block in blocks() if block.kind in {"toml", "yaml"}], ids=str)
def test_data_examples_can_be_parsed(block: Block) -> None:
    if block.kind == "toml":
        assert tomllib.loads(block.text)
    else:
        assert YAML(typ="safe").load(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_figures_name_the_command_that_measures_them(page: Path) -> None:
    for heading, text in sections(page):
        assert not MEASURED.search(text) or MEASURES.search(text), heading
