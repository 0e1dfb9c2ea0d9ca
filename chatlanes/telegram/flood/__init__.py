"""Flood control: every worker obeys a 429 that any worker receives; optional rate limits avoid 429s.

A call is sent only while neither its chat nor the bot is paused, and the limits hold across all workers, because both
are stored in Redis and use its clock. Telegram's own limits are not published and not assumed here. See docs/flood.md.
"""

from chatlanes.telegram.flood.gate import Gate, GateAnswer, Passage, Rates, RunGate
from chatlanes.telegram.flood.keys import flood_counts, flood_pauses
from chatlanes.telegram.flood.parking import FloodWait, Parking, ParkUpdate
