"""The bot that runs when BOT is not set: it repeats what it is told. `BOT=examples.echo:handle` names it in a clone."""

from chatlanes.demo.echo import handle

__all__ = ["handle"]
