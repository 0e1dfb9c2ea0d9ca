"""What messages hold: text with its markup, files, dice, polls and the rest."""

from chatlanes.sandbox.simulator.content.change import HEAD, changed
from chatlanes.sandbox.simulator.content.kinds import content_of, file_shown, medium
from chatlanes.sandbox.simulator.content.manner import manner_of
from chatlanes.sandbox.simulator.content.markup import marked

__all__ = ["HEAD", "changed", "content_of", "file_shown", "manner_of", "marked", "medium"]
