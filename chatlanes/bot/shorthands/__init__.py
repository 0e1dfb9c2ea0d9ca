"""Methods of Context for common calls, which take the ids from the update.

Each is one ctx.call and accepts any other parameter of its Bot API method by name; a given parameter overrides the
default. Raises what ctx.call raises, and a ValueError (addressing.py) if the update lacks what the call needs.
"""

from pathlib import Path
from typing import Any

from chatlanes.bot.shorthands.answers import Answers
from chatlanes.bot.shorthands.caller import Caller
from chatlanes.bot.shorthands.messages import Messages
from chatlanes.bot.shorthands.replies import Replies


class Files(Caller):
    """Downloads. They only read, so a rerun is harmless."""

    def download(self, file: str | dict[str, Any], /, to: Path | str | None = None) -> bytes:
        """The content of a file, by its file_id or by an object that has one: `ctx.download(message["document"])`.

        With `to` the file is written to that path, completely or not at all, and b"" is returned. Telegram's server
        provides files up to 20 MB; a local Bot API server any size. A photo has several sizes; choose one:
        `message["photo"][-1]`. Raises BotApiError, OSError, and ValueError for an object without a file_id.
        """
        file_id = file.get("file_id") if isinstance(file, dict) else file
        if not isinstance(file_id, str):
            raise ValueError("not a file: pass a file_id, or an object of the update that has one")
        found = self.call("getFile", file_id=file_id)
        return self._fetch(found["file_path"], None if to is None else Path(to))


class Shorthands(Replies, Messages, Answers, Files):
    """All shorthands, as a base class of Context."""


__all__ = ["Shorthands"]
