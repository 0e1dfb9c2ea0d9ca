"""A bot's own hooks for its failures and timeouts.

Guarantees that nothing a hook does or raises changes what becomes of its update.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from celery.utils.log import get_task_logger

from chatlanes import lanes
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context
from chatlanes.lanes.worker.exits import ends_the_worker

logger = get_task_logger(__name__)


def hook_context(ctx: Context, hook: str, delivery: lanes.Delivery | None) -> Context:
    """For a hook of this attempt, which is told again when it dies: its calls have a series of their own."""
    if delivery is None or not isinstance(ctx.api, Calls):
        return ctx
    return replace(ctx, api=ctx.api.beside(f"{hook}{delivery.attempt}/"))


def call_hook(hook: Callable[..., Any] | None, *arguments: Any) -> None:
    """One of the bot's own hooks. What it raises is logged and counts as nothing else."""
    if hook is None:
        return
    try:
        hook(*arguments)
    except BaseException as error:
        if ends_the_worker(error):
            raise
        logger.exception("the bot's own %s failed", getattr(hook, "__name__", hook))
