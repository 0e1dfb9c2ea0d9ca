"""The tour that a sandbox without a bot shows. `--bot examples.tour:bot` names it in a clone."""

from chatlanes.demo.tour import bot

__all__ = ["bot"]
