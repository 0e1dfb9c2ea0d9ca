"""What a shorthand stands on: the update laid open, and the call."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, BinaryIO

from chatlanes.updates import ParsedUpdate

#: A file to send: its path (pathlib), its content, an open file; as a text, Telegram's file_id, or an address that
#: Telegram fetches it from (with a local Bot API server also file:///…).
File = Path | bytes | BinaryIO | str


class Caller(ABC):
    """The context, as far as a shorthand needs it."""

    @property
    @abstractmethod
    def _parsed(self) -> ParsedUpdate: ...

    @abstractmethod
    def call(self, method: str, /, **params: Any) -> Any: ...

    @abstractmethod
    def _fetch(self, file_path: str, to: Path | None) -> bytes: ...
