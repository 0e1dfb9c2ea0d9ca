"""`python -m poller …`."""

from chatlanes.poller.__main__ import poller
from chatlanes.settings.imports import warn_of_hidden_module

warn_of_hidden_module("poller")
poller(prog_name="chatlanes poller")
