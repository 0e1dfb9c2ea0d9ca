"""Files by file_id, and kind and size of images by their first bytes.

Every file_id has a file, whose content names it. Uploads are not stored. Only what a browser shows as an image and
nothing else has a kind: other content may be a page with a script.
"""

from __future__ import annotations

import struct
from typing import Any

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


#: First bytes -> the media type.
IMAGE_KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
#: The size of images that cannot be read.
UNKNOWN_SIZE = (320, 240)


def image_kind(content: bytes) -> str | None:
    """None if it is not a known kind of picture."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in IMAGE_KINDS.items() if content.startswith(start)), None)


def image_size(content: bytes) -> tuple[int, int]:
    """Width and height."""
    try:
        match image_kind(content):
            case "image/png":
                width, height = struct.unpack(">II", content[16:24])
            case "image/gif":
                width, height = struct.unpack("<HH", content[6:10])
            case "image/jpeg":
                return _jpeg(content)
            case _:
                return UNKNOWN_SIZE
    except struct.error:
        return UNKNOWN_SIZE
    return width, height


def photo_size(file_id: str, content: bytes) -> dict[str, Any]:
    """The sizes of a sent photo."""
    width, height = image_size(content)
    size = {"width": width, "height": height, "file_size": len(content)}
    return {"file_id": file_id, "file_unique_id": file_id[-16:], **size}


def _jpeg(content: bytes) -> tuple[int, int]:
    """Reads the segments up to the one that begins the frame."""
    at = 2
    while at + 9 < len(content) and content[at] == 0xFF:
        kind, length = struct.unpack(">BH", content[at + 1 : at + 4])
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return UNKNOWN_SIZE
