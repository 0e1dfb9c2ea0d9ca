"""A bot that reminds. Its reminders are timers in Redis: they survive restarts, and any worker runs them.

make run BOT=examples.reminder_bot:bot
"""

import re
from datetime import timedelta

from chatlanes import Bot, Context

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
HELP = """in 10 min tea – reminds you once (s, min, h, d)
every 2 h drink water – reminds you again and again
list – shows your reminders
cancel tea – cancels one"""


def handle(ctx: Context) -> None:
    if found := re.fullmatch(r"(in|every) (\d{1,4}) ?(s|min|h|d) (.{1,100})", ctx.text):
        word, number, unit, what = found.groups()
        seconds = int(number) * UNITS[unit]
        ctx.later(seconds, {"every_s": seconds if word == "every" else None}, name=what)
        ctx.reply(f"I will remind you {word} {number} {unit}: {what}")
    elif ctx.text == "list":
        lines = [f"{timer.due:%d %b %H:%M:%S} UTC {timer.name}" for timer in ctx.timers()]
        ctx.reply("\n".join(lines) or "You have no reminders.")
    elif ctx.text.startswith("cancel "):
        what = ctx.text.removeprefix("cancel ")
        is_set = any(timer.name == what for timer in ctx.timers())
        if is_set:
            ctx.cancel(what)
        ctx.reply(f"Cancelled: {what}" if is_set else f"There is no reminder: {what}")
    elif ctx.text:
        ctx.reply(HELP)


def on_timer(ctx: Context) -> None:
    timer = ctx.timer
    late = f" ({timedelta(seconds=round(timer.late_s))} late)" if timer.late_s > 60 else ""
    if every_s := timer.data["every_s"]:
        ctx.later(every_s, timer.data, name=timer.name)
    ctx.reply(f"⏰ {timer.name}{late}")


bot = Bot(handle, on_timer=on_timer)
