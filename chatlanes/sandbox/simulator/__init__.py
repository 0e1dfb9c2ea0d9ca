"""A Telegram Bot API on this machine, over HTTP: for tests, for load, and for `make run` without a token.

Promises getUpdates as the public Bot API server has it: long polls, offsets, limits, kinds, conflicts, held-back polls.
Accepts every other method with a plausible result and remembers the call; sends updates to a webhook that was set.
"""

from chatlanes.sandbox.simulator.client import Simulator, SimulatorFailedError, start

__all__ = ["Simulator", "SimulatorFailedError", "start"]
