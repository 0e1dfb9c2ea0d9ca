"""The interface of handlers: Bot, Context and their errors."""

from chatlanes.bot.bot import Bot, UpdateTimeoutError
from chatlanes.bot.context import Context
from chatlanes.bot.current import current
from chatlanes.bot.schedule import Schedule
from chatlanes.bot.session.codec import SessionError
from chatlanes.bot.session.stored import TooMuchStagedError
from chatlanes.bot.timers import Timer

__all__ = ["Bot", "Context", "Schedule", "SessionError", "Timer", "TooMuchStagedError", "UpdateTimeoutError", "current"]
