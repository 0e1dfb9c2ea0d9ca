"""The content of messages: text with markup, files, dice, polls and other kinds."""

from chatlanes.sandbox.simulator.calls.content.edit import HEAD, changed
from chatlanes.sandbox.simulator.calls.content.kinds import content_of, file_shown, medium
from chatlanes.sandbox.simulator.calls.content.markup import marked
from chatlanes.sandbox.simulator.calls.content.send_options import options_of

__all__ = ["HEAD", "changed", "content_of", "file_shown", "marked", "medium", "options_of"]
