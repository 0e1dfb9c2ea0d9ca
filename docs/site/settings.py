"""mkdocs hook: on the site each setting is a section of its own, so that the search finds it first by its name.

On the code host the same page has a table for each group.
"""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

PAGE = "settings.md"
#: Other pages have sections that are named after a setting too.
BOOST = 4
HEAD = re.compile(r"^\| name \| default \| allowed \| meaning \|\n\|[-|]+\|\n", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", re.MULTILINE)
SECTION = r"### \1\n\n\4\n\n* default: \2\n* allowed: \3\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri != PAGE:
        return markdown
    page.meta["search"] = {"boost": BOOST}
    return ROW.sub(SECTION, HEAD.sub("", markdown))
