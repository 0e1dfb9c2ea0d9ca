"""Calls a bot's on_error and on_timeout hooks.

A hook's return value and exceptions do not change whether its update is settled, retried or buried.
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
    """The context for a hook of this attempt. A hook runs again if its process dies, so its calls are journaled in a
    series of their own.
    """
    if delivery is None or not isinstance(ctx.api, Calls):
        return ctx
    return replace(ctx, api=ctx.api.in_series(f"{hook}{delivery.attempt}/"))


def call_hook(hook: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call the hook, if there is one. Exceptions are logged and otherwise ignored."""
    if hook is None:
        return
    try:
        hook(*arguments)
    except BaseException as error:
        if ends_the_worker(error):
            raise
        logger.exception("the bot's hook %s failed", getattr(hook, "__name__", hook))
