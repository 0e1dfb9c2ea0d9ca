"""mkdocs hook: shows the help texts of the commands, so that they are always those of the code.

A page names a command in a comment, `<!-- help: chatlanes poller replay -->`, and the build puts what
`chatlanes poller replay --help` prints beneath it. A command that fails ends the build.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

PLACE = re.compile(r"<!-- help: chatlanes([\w -]*) -->")
#: The help of a command has lines of this many characters.
COLUMNS = "100"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    commands = list(dict.fromkeys(PLACE.findall(markdown)))
    if not commands:
        return markdown
    # In one process: to start each takes a second. In one of its own, because `mkdocs serve` shows changed code.
    words, environment = [sys.executable, __file__, *commands], {**os.environ, "COLUMNS": COLUMNS}
    printed = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True).stdout
    texts = dict(zip(commands, json.loads(printed), strict=True))
    return PLACE.sub(lambda place: f"~~~~text\n{texts[place[1]]}~~~~", markdown)


def _help_of(command: str) -> str:
    """What `chatlanes COMMAND --help` prints."""
    from chatlanes.__main__ import main

    with redirect_stdout(StringIO()) as printed:
        try:
            main([*command.split(), "--help"], prog_name="chatlanes")
        except SystemExit as ended:
            if ended.code:
                raise
    return printed.getvalue()


def _print_help(commands: Sequence[str]) -> None:
    print(json.dumps([_help_of(command) for command in commands]))  # noqa: T201


if __name__ == "__main__":
    _print_help(sys.argv[1:])
