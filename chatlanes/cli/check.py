"""`lanes check`: one line for each thing that must be right; code 1 when one of them is not."""

from __future__ import annotations

import click

from chatlanes.cli.command import Lanes, command
from chatlanes.cli.health_checks import findings

_SHOWN = {True: ("ok   ", "green"), False: ("WRONG", "red"), None: ("-    ", None)}


@command("check")
def check(lanes: Lanes) -> None:
    """Redis, how durable it is, clocks, workers and their versions, who brings updates in. Code 1: one is wrong."""
    bots = lanes.bots()
    replicas = bots[0].durable_replicas if bots else 0
    is_right = True
    for finding in findings(lanes, bots, replicas):
        word, colour = _SHOWN[finding.is_right]
        click.echo(f"{click.style(word, fg=colour)} {finding.what}: {finding.sentence}")
        is_right = is_right and finding.is_right is not False
    if not is_right:
        click.get_current_context().exit(1)
