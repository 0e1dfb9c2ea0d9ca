"""`python -m settings …`."""

from chatlanes.settings.__main__ import settings
from chatlanes.settings.imports import warn_of_hidden_module

warn_of_hidden_module("settings")
settings(prog_name="chatlanes settings")
