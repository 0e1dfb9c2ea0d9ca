"""The Bot API calls of one run of a handler: journaled, rate limited, fenced."""

from chatlanes.bot.calls.journal import CallJournal, JournaledCall, Uncertain
from chatlanes.bot.calls.lifecycle import Lifecycle, Phase
from chatlanes.bot.calls.run_calls import Calls, calls_of, ending_of

__all__ = ["CallJournal", "Calls", "JournaledCall", "Lifecycle", "Phase", "Uncertain", "calls_of", "ending_of"]
