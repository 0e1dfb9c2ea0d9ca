"""Flood control: what a 429 asks of one worker, all workers heed; and limits of one's own, before there is a 429.

Promises that a call goes out only when its chat, and the bot, are not paused, and that limits hold over all workers,
because both are kept in Redis, by its clock. Does not know Telegram's limits, which are not published: a 429 is the
truth. See docs/flood.md.
"""

from chatlanes.telegram.flood.decisions import GateAnswer
from chatlanes.telegram.flood.gate import Ask, Gate, OpenGate, OpenPassage, Passage, RunGate
from chatlanes.telegram.flood.inspection import flood_counts, flood_pauses
from chatlanes.telegram.flood.parking import FloodWait, Parking, ParkUpdate
from chatlanes.telegram.flood.rates import Rates
from chatlanes.telegram.flood.waiting import Waiting

__all__ = [
    "Ask",
    "FloodWait",
    "Gate",
    "GateAnswer",
    "OpenGate",
    "OpenPassage",
    "ParkUpdate",
    "Parking",
    "Passage",
    "Rates",
    "RunGate",
    "Waiting",
    "flood_counts",
    "flood_pauses",
]
