"""The calls that most bots make, with the ids taken from the update: a part of what a handler gets (context.py).

Each is one ctx.call, and takes any other parameter of its method by name; what is given by name wins. Raises what
ctx.call raises, and a ValueError (places.py) where the update has not what the call needs.
"""

from chatlanes.bot.shorthands.answers import Answers
from chatlanes.bot.shorthands.files import Files
from chatlanes.bot.shorthands.messages import Messages
from chatlanes.bot.shorthands.replies import Replies


class Shorthands(Replies, Messages, Answers, Files):
    """All of them."""


__all__ = ["Shorthands"]
