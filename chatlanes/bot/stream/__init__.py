"""Streams: messages that grow while their text is written."""

from chatlanes.bot.stream.messages import apply_on_interrupt, finish_interrupted
from chatlanes.bot.stream.stream import Stream
