"""The bot of these runs: it answers each update with its id, and works for a moment, so that some always wait."""

from __future__ import annotations

import time

from chatlanes import Context

WORKS_S = 0.05


def handle(ctx: Context) -> None:
    time.sleep(WORKS_S)
    ctx.call("sendMessage", chat_id=ctx.chat_id, text=str(ctx.update["update_id"]))
