"""mkdocs hook: shows the help texts of the installed commands, so that they are always those of the code.

A page names a command in a comment, `<!-- help: chatlanes poller replay -->`, and the build puts what
`chatlanes poller replay --help` prints beneath it. A command that fails ends the build.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

PLACE = re.compile(r"<!-- help: (chatlanes[\w -]*) -->")
#: The help of a command has lines of this many characters.
COLUMNS = "100"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    commands = list(dict.fromkeys(PLACE.findall(markdown)))
    if not commands:
        return markdown
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = dict(zip(commands, pool.map(help_of, commands), strict=True))
    return PLACE.sub(lambda place: f"~~~~text\n{texts[place[1]]}~~~~", markdown)


def help_of(command: str) -> str:
    """The output of the command with --help."""
    program, *rest = command.split()
    words = [str(Path(sys.executable).with_name(program)), *rest, "--help"]
    environment = {**os.environ, "COLUMNS": COLUMNS}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
