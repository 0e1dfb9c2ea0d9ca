"""A Telegram Bot API on this machine, over HTTP: for tests, for load, and for the sandbox.

getUpdates behaves as at the public server: long polls, offsets, limits, kinds, conflicts. Every other method returns a
plausible result and is recorded; a webhook that was set gets the updates.
"""

from chatlanes_sandbox.simulator.client import NotSentError, Simulator, SimulatorFailedError, start

__all__ = ["NotSentError", "Simulator", "SimulatorFailedError", "start"]
