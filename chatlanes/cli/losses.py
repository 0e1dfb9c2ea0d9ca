"""`lanes acknowledge-loss`: a person has seen that Redis lost what it held, and `lanes check` is to pass again."""

from __future__ import annotations

import click

from chatlanes.cli.command import Lanes, command
from chatlanes.cli.formatting import moment


@command("acknowledge-loss")
def acknowledge_loss(lanes: Lanes) -> None:
    """Redis lost what it held, and you have seen it: `check` passes again."""
    losses = sorted(lanes.store.acknowledge_losses())
    if not losses:
        click.echo("there is no loss to acknowledge")
    for loss in losses:
        click.echo(f"acknowledged: updates {loss.first:,} to {loss.last:,}, noticed {moment(loss.at_ms)}")
