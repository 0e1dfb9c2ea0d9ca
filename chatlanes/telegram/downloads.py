"""Where a file's content goes when it is downloaded.

Promises that a file that was asked for under a name is there whole or not at all. A Bot API server that runs with
--local gives paths of its own disk instead of something to download: those are read from there.
"""

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

#: What errors call it: no method of the Bot API.
METHOD = "download"


def is_here(file_path: str) -> bool:
    """Whether a local Bot API server named a file of its disk."""
    return file_path.startswith("/")


def take_local(file_path: str, to: Path | None) -> bytes:
    """Raises FileNotFoundError, with what to do, when this machine does not have the server's files."""
    try:
        source = Path(file_path).open("rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{file_path} is not on this machine: the local Bot API server keeps its files where it runs. Mount its "
            "directory here under the same path, or run the server without --local"
        ) from None
    with source:
        if to is None:
            return source.read()
        with _replacing(to) as written:
            shutil.copyfileobj(source, written)
    return b""


def take(pieces: Iterable[bytes], to: Path | None) -> bytes:
    if to is None:
        return b"".join(pieces)
    with _replacing(to) as written:
        written.writelines(pieces)
    return b""


@contextmanager
def _replacing(to: Path) -> Iterator[BinaryIO]:
    """A file beside it that takes its place in one step, at the end."""
    part = to.with_name(f".{to.name}.{uuid.uuid4().hex[:8]}")
    try:
        with part.open("wb") as written:
            yield written
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
