"""Files by file_id. Every file_id has a file, whose content names it. Uploads are not stored."""

from __future__ import annotations

FOLDER = "files/"


class FileStore:
    """The files of one bot."""

    #: True if uploads are passed to `keep`.
    keeps = False

    def keep(self, name: str, content: bytes) -> str:
        """The file_id of an upload."""
        raise NotImplementedError

    def content_of(self, file_id: str) -> bytes:
        return f"the content of {file_id}\n".encode()

    def path_of(self, file_id: str) -> str:
        return f"{FOLDER}{file_id}"

    def at(self, path: str) -> bytes | None:
        """The content at a path returned by `path_of`."""
        return self.content_of(path.removeprefix(FOLDER)) if path.startswith(FOLDER) else None
