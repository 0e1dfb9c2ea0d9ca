"""What a handler sees: its context, the Bot API behind it, and the errors it may get."""

from tasks.bot.bot import Bot, UpdateTimeoutError
from tasks.bot.context import Context
from tasks.bot.current import current
from tasks.bot.session_json import SessionError

__all__ = ["Bot", "Context", "SessionError", "UpdateTimeoutError", "current"]
