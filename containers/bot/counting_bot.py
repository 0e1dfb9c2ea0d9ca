"""Replies to each message with its text."""

import time
from typing import Any


def handle(ctx: Any) -> None:
    time.sleep(0.05)
    ctx.reply(ctx.update["message"]["text"])
