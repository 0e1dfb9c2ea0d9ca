"""mkdocs hook: files outside of docs/ that a page links to become pages of the site.

A link such as `../celery_lanes/errors.py` works on the code host as it is written. On the site it leads to a page
that shows the file; Markdown files, such as CHANGELOG.md, become ordinary pages. mkdocs reports links to missing files.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: The folder of those pages in the site.
SOURCE = "source/"

LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".py": "python", ".lua": "lua", ".yml": "yaml", ".toml": "toml", ".example": "sh"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each linked file, and for the files that those pages link to."""
    to_read = list(files.documentation_pages())
    while to_read:
        page = to_read.pop()
        for _, link, _ in LINK.findall(page.content_string):
            target = _target(page.src_uri, link)
            if target is None or files.get_file_from_path(_uri(target)) or not _uri(target).startswith(SOURCE):
                continue
            added = File.generated(config, _uri(target), content=_content(target))
            files.append(added)
            to_read.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points the links of a page at those pages."""
    uri = page.file.src_uri

    def rewritten(link: re.Match[str]) -> str:
        target = _target(uri, link[2])
        if target is None:
            return link[0]
        return link[1] + posixpath.relpath(_uri(target), posixpath.dirname(uri) or ".") + link[3]

    return LINK.sub(rewritten, markdown)


def _target(uri: str, link: str) -> Path | None:
    """The file or directory of the repository that a page links to; None if there is none."""
    folder = (ROOT / uri.removeprefix(SOURCE) if uri.startswith(SOURCE) else DOCS / uri).parent
    target = Path(posixpath.normpath(folder / link))
    return target if target.exists() and target.is_relative_to(ROOT) else None


def _uri(target: Path) -> str:
    """The place of a file in the site."""
    if target.is_relative_to(DOCS) and target.is_file() and target.suffix != ".py":  # mkdocs.yml leaves .py files out
        return target.relative_to(DOCS).as_posix()
    path = SOURCE + target.relative_to(ROOT).as_posix().lstrip(".")  # mkdocs leaves out files like .env.example
    return path if path.endswith(".md") else f"{path}.md"


def _content(target: Path) -> str:
    if target.suffix == ".md":
        return target.read_text()
    name = target.relative_to(ROOT).as_posix()
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {target.name}\n\n`{name}`\n\n"
    if target.is_dir():
        inside = sorted(path for path in target.iterdir() if not path.name.startswith((".", "__pycache__")))
        return head + "".join(f"* [{path.name}]({target.name}/{path.name})\n" for path in inside)
    return f"{head}~~~~{LANGUAGES.get(target.suffix, 'text')}\n{target.read_text()}\n~~~~\n"
