"""The page's files: what people and the bot sent.

Promises that what was kept can be had by its file_id and by the path that getFile gives.
"""

from __future__ import annotations

import secrets

from chatlanes.sandbox.page.kept import Kept
from chatlanes.sandbox.simulator.files import FOLDER, Files


class PageFiles(Files):
    """A file_id that is not kept has the content that every file_id has without a page."""

    keeps = True

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def keep(self, name: str, content: bytes) -> str:
        file_id = f"page-{secrets.token_urlsafe(18)}"
        self._kept.put_file(file_id, name.replace("/", "_"), content)
        return file_id

    def content_of(self, file_id: str) -> bytes:
        found = self._kept.file(file_id)
        return found[1] if found else super().content_of(file_id)

    def path_of(self, file_id: str) -> str:
        found = self._kept.file(file_id)
        return f"{FOLDER}{file_id}/{found[0]}" if found else super().path_of(file_id)

    def at(self, path: str) -> bytes | None:
        file_id, slash, _ = path.removeprefix(FOLDER).partition("/")
        return self.content_of(file_id) if slash and path.startswith(FOLDER) else super().at(path)
