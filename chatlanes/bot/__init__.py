"""What a handler sees: its context, the Bot API behind it, and the errors it may get."""

from chatlanes.bot.bot import Bot, UpdateTimeoutError
from chatlanes.bot.context import Context
from chatlanes.bot.current import current
from chatlanes.bot.session.codec import SessionError

__all__ = ["Bot", "Context", "SessionError", "UpdateTimeoutError", "current"]
