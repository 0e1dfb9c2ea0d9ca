"""The pages of the documentation, and their testable parts: links, code, commands, figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support import ROOT

TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
#: A comment at the end of a command, as the shell has it.
COMMENT = re.compile(r"(^|\s)#(\s.*|$)")
#: The beginning of a span of code that counts as a command.
PROGRAMS = re.compile(r"^([A-Z_]+=\S+ )*(make|chatlanes(?=\s+\w)|celery -A chatlanes|python -m|docker compose)( |$)")


@dataclass(frozen=True)
class Block:
    page: Path
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text.strip().splitlines()[0][:60]}"


@cache
def blocks() -> tuple[Block, ...]:
    return tuple(Block(page, kind, text) for page in PAGES for kind, text in FENCE.findall(page.read_text()))


def prose(page: Path) -> str:
    """Without its blocks of code."""
    return FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    return LINK.findall(prose(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """As GitHub makes them from headings."""
    return frozenset(_anchor(heading) for heading in HEADING.findall(prose(page)))


def _anchor(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def commands() -> list[str]:
    """Each command line of the pages, once."""
    return sorted({line for block in blocks() if block.kind == "sh" for line in _lines(block.text)} | set(_spans()))


def _lines(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        if command := " ".join(COMMENT.sub("", line).split()):
            yield command


def _spans() -> Iterator[str]:
    for page in PAGES:
        for span in SPAN.findall(prose(page)):
            if PROGRAMS.match(span):
                yield span


def sections(page: Path) -> Iterator[tuple[str, str]]:
    """(heading, text below it), for headings of the second level."""
    for part in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        yield heading, text
