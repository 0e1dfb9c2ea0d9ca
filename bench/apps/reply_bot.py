"""The bot of the broadcast row: it replies, and records the time from Telegram's answer to the end of its reply; and a
plain loop that a broadcast is compared with: `python -m bench.apps.reply_bot URL COUNT RATE`.
"""

from __future__ import annotations

import sys
import time

import requests

from bench.apps.bot import record
from chatlanes.bot.context import Context


def handle(ctx: Context) -> None:
    ctx.call("sendMessage", chat_id=ctx.chat_id, text="a reply")
    record(ctx.update)


def loop(url: str, count: int, rate: float) -> None:
    """What bots do by hand: one call after the other, at most `rate` a second. It remembers nothing."""
    session, due_s = requests.Session(), time.monotonic()
    for chat in range(count):
        time.sleep(max(due_s - time.monotonic(), 0))
        due_s += 1 / rate
        session.post(f"{url}/sendMessage", json={"chat_id": 1_000_000 + chat, "text": "news"}, timeout=60)


if __name__ == "__main__":
    loop(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
