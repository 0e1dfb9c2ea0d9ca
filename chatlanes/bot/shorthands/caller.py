"""The interface that the shorthands need of Context: the parsed update and the Bot API call."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, BinaryIO

from chatlanes.updates import ParsedUpdate

#: A file to send: a pathlib.Path, its content, an open file, or a text: Telegram's file_id, or a URL that Telegram
#: downloads (with a local Bot API server also file:///…).
File = Path | bytes | BinaryIO | str


class Caller(ABC):
    """The part of Context that a shorthand uses."""

    @property
    @abstractmethod
    def _parsed(self) -> ParsedUpdate: ...

    @abstractmethod
    def call(self, method: str, /, **params: Any) -> Any: ...

    @abstractmethod
    def _fetch(self, file_path: str, to: Path | None) -> bytes: ...
