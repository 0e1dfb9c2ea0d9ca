"""What a handler sees: its context, the Bot API behind it, and the errors it may get."""

from tasks.bot.bot import Bot, UpdateTimeoutError
from tasks.bot.context import Context

__all__ = ["Bot", "Context", "UpdateTimeoutError"]
