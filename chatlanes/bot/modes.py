"""ctx.mode: what becomes of updates of a chat that arrive during a run, chosen at run time.

Guarantees that a choice holds for the updates that are appended after the run which made it was settled, and that a run
which fails makes none. It is stored for the first lane of the update.
"""

from __future__ import annotations

from typing import Any, Protocol, get_args

from celery_lanes.protocol import Mode, SetMode
from chatlanes.bot.stored import Stored

_MODES = get_args(Mode)


class Owner(Protocol):
    """What this needs of its context."""

    stored: Stored | None
    default_mode: Mode


def mode_of(ctx: Owner) -> Mode:
    """Raises LeaseLost, and ParkUpdate if Redis is away."""
    if "chosen_mode" not in ctx.__dict__:
        ctx.__dict__["has_read_mode"] = True  # a coroutine reads it before the handler then (coroutines.py)
        ctx.__dict__["chosen_mode"] = None if ctx.stored is None else ctx.stored.mode_of()
    chosen: Mode = ctx.__dict__["chosen_mode"]
    return chosen if chosen in _MODES else ctx.default_mode


def choose(ctx: Owner, mode: Mode | None) -> None:
    """Raises ValueError."""
    write = SetMode(mode)
    if ctx.stored is not None:
        if ctx.default_mode == "queue":
            raise ValueError("ctx.mode needs a COLLECT other than none: without it, each update is a run of its own")
        ctx.stored.stage_modes([write])
    ctx.__dict__["chosen_mode"] = mode


def move(stored: Stored, old: int, new: int) -> None:
    """A group has become a supergroup, which keeps its mode. Raises the same as `mode_of`."""
    lanes = [f"{stored.bot_id}/chat:{chat}" for chat in (old, new)]
    mode: Any = stored.mode_of(lanes[0])
    if mode in _MODES:
        stored.stage_modes([SetMode(None, lanes[0]), SetMode(mode, lanes[1])])
