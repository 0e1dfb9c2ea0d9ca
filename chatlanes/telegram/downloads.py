"""Stores downloaded files.

A file written to a path is either complete or absent. A Bot API server that runs with --local returns paths on its own
disk instead of downloads; these files are read from the disk, and only regular ones inside of BOT_API_FILES, because
an answer of the server must not choose which file of this machine a bot reads.
"""

import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from chatlanes.logs.foreign_text import one_line

#: The method name in errors of downloads. It is not a method of the Bot API.
METHOD = "download"
_PIECE_BYTES = 1 << 20


def is_local(file_path: str) -> bool:
    """True if the path is on the disk of a local Bot API server."""
    return file_path.startswith("/")


def is_here(file_path: str) -> bool:
    """True if it is a file of this machine, as a framework finds out."""
    try:
        return Path(file_path).is_file()
    except (OSError, ValueError):
        return False


def check_relative(file_path: str) -> None:
    """Raises PermissionError for a path that leaves the bot's files on the server."""
    if ".." in PurePosixPath(file_path).parts:
        raise PermissionError(f"{one_line(file_path)} is not a path of a file: the Bot API server returned it")


def resolved(file_path: str, folder: Path | None) -> Path:
    """The file without symbolic links. Raises OSError with a remedy."""
    if folder is None:
        raise PermissionError(
            "the Bot API server returned a path on its own disk, as it does with --local: set BOT_API_FILES to the "
            "folder that has its files on this machine, or run the server without --local"
        )
    try:
        found = Path(file_path).resolve(strict=True)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{one_line(file_path)} is not on this machine: a local Bot API server stores files on its own disk. "
            "Mount its directory here under the same path, or run the server without --local"
        ) from None
    if not found.is_relative_to(folder.resolve()):
        raise PermissionError(f"{one_line(file_path)} is not inside of BOT_API_FILES={folder}")
    return found


def read_local(file_path: str, folder: Path | None, to: Path | None, most_bytes: int) -> bytes:
    """The file's content, or b"" if it was copied `to` a file. Raises OSError with a remedy."""
    # Without O_NONBLOCK, opening a named pipe waits for its writer.
    opened = os.open(resolved(file_path, folder), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(opened, "rb") as source:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise PermissionError(f"{one_line(file_path)} is not a regular file")
        return store(_pieces(source, most_bytes), to)


def store(pieces: Iterable[bytes], to: Path | None) -> bytes:
    if to is None:
        return b"".join(pieces)
    with _replacing(to) as written:
        written.writelines(pieces)
    return b""


def _pieces(source: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    left = most_bytes
    while piece := source.read(_PIECE_BYTES):
        if (left := left - len(piece)) < 0:
            raise OSError(f"the file has more than {most_bytes:,} bytes")
        yield piece


@contextmanager
def _replacing(to: Path) -> Iterator[BinaryIO]:
    """A temporary file in the same directory, renamed to `to` when it is complete."""
    part = to.with_name(f".{to.name}.{uuid.uuid4().hex[:8]}")
    try:
        with part.open("wb") as written:
            yield written
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
