"""The files that users and the bot sent, by file_id and by the path that getFile returns."""

from __future__ import annotations

import secrets

from chatlanes.sandbox.page.storage import PageStorage
from chatlanes.sandbox.simulator.calls.files import FOLDER, FileStore


class PageFiles(FileStore):
    """A file_id that is not kept has the content that every file_id has without a page."""

    keeps = True

    def __init__(self, storage: PageStorage) -> None:
        self._storage = storage

    def keep(self, name: str, content: bytes) -> str:
        file_id = f"page-{secrets.token_urlsafe(18)}"
        self._storage.put_file(file_id, name.replace("/", "_"), content)
        return file_id

    def content_of(self, file_id: str) -> bytes:
        found = self._storage.file(file_id)
        return found[1] if found else super().content_of(file_id)

    def path_of(self, file_id: str) -> str:
        found = self._storage.file(file_id)
        return f"{FOLDER}{file_id}/{found[0]}" if found else super().path_of(file_id)

    def at(self, path: str) -> bytes | None:
        file_id, slash, _ = path.removeprefix(FOLDER).partition("/")
        return self.content_of(file_id) if slash and path.startswith(FOLDER) else super().at(path)
