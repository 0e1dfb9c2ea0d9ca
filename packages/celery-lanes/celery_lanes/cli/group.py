"""Command groups whose texts are filled in with the words of an app, and a type of their options."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from celery_lanes.words import Words


class Group(click.Group):
    """Shows the whole first sentence of each sub-command, which click would cut. Its sub-groups do, too."""

    group_class = type

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=1000)) for name in names])


class FiniteRange(click.FloatRange):
    """A range of numbers that has neither NaN, which click accepts in any, nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def filled(command: click.Command, words: Words) -> click.Command:
    """A copy of a command and its sub-commands, with words for `{message}`, `{group}`, …, also in names of options."""
    values = asdict(words)
    made = copy.copy(command)
    made.name, made.help = _fill(command.name, values), _fill(command.help, values)
    made.params = [_filled_parameter(each, values) for each in command.params]
    if isinstance(made, click.Group):
        parts = [filled(each, words) for each in made.commands.values()]
        made.commands = {str(each.name): each for each in parts}
    return made


def _filled_parameter(parameter: click.Parameter, words: Mapping[str, str]) -> click.Parameter:
    made = copy.copy(parameter)
    made.opts = [str(_fill(each, words)) for each in parameter.opts]
    made.metavar = _fill(parameter.metavar, {name: word.upper() for name, word in words.items()})
    if isinstance(made, click.Option):
        made.help = _fill(made.help, words)
    return made


def _fill(text: str | None, words: Mapping[str, str]) -> str | None:
    for name, word in words.items():
        text = text and text.replace(f"{{{name}}}", word)
    return text
