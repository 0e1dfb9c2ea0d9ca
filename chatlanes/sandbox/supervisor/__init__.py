"""Runs the processes of the sandbox: their output, restarts, and the end of all of them."""

from chatlanes.sandbox.supervisor.import_check import ImportCheck
from chatlanes.sandbox.supervisor.output import can_redraw
from chatlanes.sandbox.supervisor.page_channel import PageChannel
from chatlanes.sandbox.supervisor.supervisor import Supervisor

__all__ = ["ImportCheck", "PageChannel", "Supervisor", "can_redraw"]
