"""The bot that runs if BOT is not set: it repeats messages. In a clone, `BOT=examples.echo:handle` names it too."""

from chatlanes.demo.echo import handle

__all__ = ["handle"]
