"""What messages hold: text with its markup, files, dice, polls and the rest."""

from sandbox.simulator.content.change import HEAD, changed
from sandbox.simulator.content.kinds import content_of, file_shown, medium
from sandbox.simulator.content.manner import manner_of
from sandbox.simulator.content.markup import marked

__all__ = ["HEAD", "changed", "content_of", "file_shown", "manner_of", "marked", "medium"]
