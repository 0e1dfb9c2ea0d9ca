"""A bot that answers what it was given, for tests of COLLECT and INTERRUPT: the ids of its updates, and their texts.

A text may contain orders: `gate:a` waits until the test opens gate a, `fails:2` fails the first two attempts.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from chatlanes.bot.context import Context
from tests.support.bots import GATES, record

#: Updates without a name are not collected.
NAMES = re.compile(r"name:(\w+)")


def handle(ctx: Context) -> None:
    record("start", ctx)
    for order, value in re.findall(r"(\w+):(\w+)", ctx.text):
        if order == "gate":
            Path(os.environ[GATES], f"{value}.reached").touch()
            while not Path(os.environ[GATES], value).exists():
                time.sleep(0.005)
        elif order == "fails" and ctx.attempt <= int(value):
            raise RuntimeError(f"attempt {ctx.attempt}")
    ids = ",".join(str(update["update_id"]) for update in ctx.updates)
    ctx.call("sendMessage", chat_id=ctx.chat_id, text=f"{ids}: {ctx.text or ctx.kind}, {len(ctx.photos)} photos")
    record("end", ctx)


def by_name(update: dict[str, Any]) -> str | None:
    found = NAMES.search(update["message"]["text"])
    return found and found[1]
