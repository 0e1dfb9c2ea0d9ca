"""The interface through which a handler calls the Bot API."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable


class Api(Protocol):
    """Calls the Bot API: the client, or a wrapper around it."""

    def call(self, method: str, /, **params: Any) -> Any: ...


@runtime_checkable
class HasFiles(Protocol):
    """An Api that can download files."""

    def download(self, file_path: str, to: Path | None = None) -> bytes: ...
