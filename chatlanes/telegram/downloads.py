"""Stores downloaded files.

A file written to a path is either complete or absent. A Bot API server that runs with --local returns paths on its own
disk instead of downloads; these files are read from the disk.
"""

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

#: The method name in errors of downloads. It is not a method of the Bot API.
METHOD = "download"


def is_local(file_path: str) -> bool:
    """True if the path is on the disk of a local Bot API server."""
    return file_path.startswith("/")


def read_local(file_path: str, to: Path | None) -> bytes:
    """The file's content, or b"" if it was copied `to` a file. Raises FileNotFoundError with a remedy if this machine
    does not have the server's files.
    """
    try:
        source = Path(file_path).open("rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{file_path} is not on this machine: a local Bot API server stores files on its own disk. Mount its "
            "directory here under the same path, or run the server without --local"
        ) from None
    with source:
        if to is None:
            return source.read()
        with _replacing(to) as written:
            shutil.copyfileobj(source, written)
    return b""


def store(pieces: Iterable[bytes], to: Path | None) -> bytes:
    if to is None:
        return b"".join(pieces)
    with _replacing(to) as written:
        written.writelines(pieces)
    return b""


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
