"""`lanes check`: one line per health check, exit code 1 if one fails; `lanes acknowledge-loss`: accepts losses."""

from __future__ import annotations

import click

from chatlanes.cli.command import CommandContext, command
from chatlanes.cli.formatting import moment
from chatlanes.cli.health_checks import findings

_SHOWN = {True: ("ok   ", "green"), False: ("WRONG", "red"), None: ("-    ", None)}


@command("check")
def check(lanes: CommandContext) -> None:
    """Check Redis, its durability, the clocks, the workers and their versions, and the intake. Code 1: one failed."""
    bots = lanes.bots()
    replicas = bots[0].durable_replicas if bots else 0
    is_right = True
    for finding in findings(lanes, bots, replicas):
        word, colour = _SHOWN[finding.is_right]
        click.echo(f"{click.style(word, fg=colour)} {finding.what}: {finding.sentence}")
        is_right = is_right and finding.is_right is not False
    if not is_right:
        click.get_current_context().exit(1)


@command("acknowledge-loss")
def acknowledge_loss(lanes: CommandContext) -> None:
    """Acknowledge reported losses of data in Redis, so that `check` passes again."""
    losses = sorted(lanes.store.acknowledge_losses())
    if not losses:
        click.echo("there is no loss to acknowledge")
    for loss in losses:
        click.echo(f"acknowledged: updates {loss.first:,} to {loss.last:,}, noticed {moment(loss.at_ms)}")
