"""The interface of handlers: Bot, Context and their errors."""

from chatlanes.bot.bot import Bot, UpdateTimeoutError
from chatlanes.bot.calls.journal import AskTimeout, StepError
from chatlanes.bot.context import Context, current
from chatlanes.bot.schedules import Schedule
from chatlanes.bot.session import SessionError
from chatlanes.bot.stored import TooMuchStagedError
from chatlanes.bot.timers import Timer
