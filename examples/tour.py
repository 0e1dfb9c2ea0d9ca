"""The tour that a sandbox without a bot runs. In a clone, `--bot examples.tour:bot` names it too."""

from chatlanes.demo.tour import bot

__all__ = ["bot"]
