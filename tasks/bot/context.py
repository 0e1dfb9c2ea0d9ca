"""What a handler gets: one update, and the means to answer it.

Promises that the other updates of the same lanes wait while the handler runs. Its repr tells no one's text.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from tasks.anatomy import Anatomy, chat_of, lay_open
from tasks.bot.reply import reply_call


class Api(Protocol):
    """What calls the Bot API: the client itself, or what stands before it."""

    def call(self, method: str, /, **params: Any) -> Any: ...


@dataclass(frozen=True, eq=False, repr=False)
class Context:
    """The one argument of a handler."""

    update: dict[str, Any]  #: as Telegram sent it
    api: Api
    attempt: int = 1  #: 1 at the first time, 2 after a failure or a death, …
    deadline_s: float | None = None  #: when UPDATE_TIMEOUT is over, as time.monotonic(); None: never

    @property
    def update_id(self) -> int:
        return int(self.update["update_id"])

    @property
    def kind(self) -> str:
        """`message`, `callback_query`, …"""
        return self._opened.kind

    @cached_property
    def chat_id(self) -> int | None:
        """The chat it came from, else its user's private chat; None for the few updates with neither, such as polls."""
        return chat_of(self.update)

    @property
    def timed_out(self) -> bool:
        """Whether UPDATE_TIMEOUT is over. A thread cannot be interrupted: a long loop may ask this, and end itself."""
        return self.deadline_s is not None and time.monotonic() >= self.deadline_s

    def call(self, method: str, /, **params: Any) -> Any:
        """The result of any Bot API method. Raises tasks.bot.errors.BotApiError."""
        return self.api.call(method, **params)

    def reply(self, text: str, /, **params: Any) -> Any:
        """Sends text to where the update came from, with any parameters of sendMessage. Returns the message sent.

        Raises tasks.bot.reply.NoChatError where there is no chat, and BotApiError.
        """
        method, wanted = reply_call(self._opened, text, params)
        return self.call(method, **wanted)

    @cached_property
    def _opened(self) -> Anatomy:
        return lay_open(self.update)

    def __repr__(self) -> str:
        return f"Context({self.kind} {self.update.get('update_id')}, chat {self.chat_id}, attempt {self.attempt})"
