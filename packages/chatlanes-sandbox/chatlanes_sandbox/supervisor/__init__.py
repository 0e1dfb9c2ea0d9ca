"""Runs the processes of the sandbox: their output, restarts, and the end of all of them."""

from chatlanes_sandbox.supervisor.import_check import ImportCheck
from chatlanes_sandbox.supervisor.output import can_redraw
from chatlanes_sandbox.supervisor.supervisor import Supervisor
