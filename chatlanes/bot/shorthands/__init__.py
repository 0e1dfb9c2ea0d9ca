"""The calls that most bots make, with the ids taken from the update: a part of what a handler gets (context.py).

Each is one ctx.call, and takes any other parameter of its method by name, which wins over ours. Raises what ctx.call
raises, and a ValueError (addressing.py) if the update lacks what the call needs.
"""

from pathlib import Path
from typing import Any

from chatlanes.bot.shorthands.answers import Answers
from chatlanes.bot.shorthands.caller import Caller
from chatlanes.bot.shorthands.messages import Messages
from chatlanes.bot.shorthands.replies import Replies


class Files(Caller):
    """Only reads: nothing of it is done twice by running again."""

    def download(self, file: str | dict[str, Any], /, to: Path | str | None = None) -> bytes:
        """The content of a file, by its file_id or by the object that has one: `ctx.download(message["document"])`.

        With `to` it is written there, whole or not at all, and what is returned is empty. Telegram's own server gives
        files up to 20 MB; a local Bot API server any. Of a photo take one size: `message["photo"][-1]`.
        Raises BotApiError, OSError, and ValueError for what has no file_id.
        """
        file_id = file.get("file_id") if isinstance(file, dict) else file
        if not isinstance(file_id, str):
            raise ValueError("that is no file: give a file_id, or an object of the update that has one")
        found = self.call("getFile", file_id=file_id)
        return self._fetch(found["file_path"], None if to is None else Path(to))


class Shorthands(Replies, Messages, Answers, Files):
    """All of them."""


__all__ = ["Shorthands"]
