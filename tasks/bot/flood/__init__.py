"""Flood control: what a 429 asks of one worker, all workers heed; and limits of one's own, before there is a 429.

Promises that a call goes out only when its chat, and the bot, are not paused, and that limits hold over all workers,
because both are kept in Redis, by its clock. Does not know Telegram's limits, which are not published: a 429 is the
truth. See docs/flood.md.
"""

from tasks.bot.flood.gate import Gate, OpenGate, OpenPassage, RunGate
from tasks.bot.flood.passage import Ask, Passage
from tasks.bot.flood.rates import Rates
from tasks.bot.flood.waiting import Waiting

__all__ = ["Ask", "Gate", "OpenGate", "OpenPassage", "Passage", "Rates", "RunGate", "Waiting"]
