"""A tour of the promises, with one button each, to watch on the sandbox page.

Run it with `chatlanes sandbox --bot chatlanes.demo.tour:bot`, open the page and press /start.
Other messages are repeated.
"""

import os
import signal
import time
from pathlib import Path

from chatlanes.bot import Bot
from chatlanes.bot.context import Context

SLOW_S = 6


class NeverRetriedError(Exception):
    """Another attempt would fail too."""


def handle(ctx: Context) -> None:
    if ctx.kind == "callback_query":
        ctx.answer_callback(None if ctx.data in STOPS else "This bot does not know this button.")
        STOPS.get(ctx.data, nothing)(ctx)
    elif ctx.kind == "message":
        COMMANDS.get(ctx.text.partition("@")[0], repeat)(ctx)


def start(ctx: Context) -> None:
    name = ctx.update["message"]["from"]["first_name"]
    ctx.reply(
        f"Hello {name}! Press a button to try it. Any other message is repeated, in order.",
        reply_markup={"inline_keyboard": rows([{"text": stop, "callback_data": stop} for stop in STOPS])},
    )


def rows(buttons: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    """Two buttons per row."""
    return [buttons[at : at + 2] for at in range(0, len(buttons), 2)]


def slow(ctx: Context) -> None:
    """Other updates of this chat wait; those of other chats do not."""
    ctx.reply(f"This takes {SLOW_S} s. Meanwhile, write something here and in another chat.")
    ctx.typing()
    time.sleep(SLOW_S)
    ctx.reply("Done. The messages that you wrote here follow now, in order.")


def fail_twice(ctx: Context) -> None:
    """A later attempt does not repeat calls that were made."""
    ctx.reply("Asking the bank …")
    if ctx.attempt < 3:
        raise ConnectionError(f"the bank does not answer (attempt {ctx.attempt})")
    ctx.reply(f"Attempt {ctx.attempt} succeeded. My first message was still sent only once.")


def bury(ctx: Context) -> None:
    """An update that cannot succeed is buried, and the chat continues."""
    raise NeverRetriedError("this update is buried, with its traceback; inspect it, then replay it")


def die(ctx: Context) -> None:
    """Like an update that runs out of memory: its process dies, the update does not."""
    ctx.reply("My process will now be killed, in the middle of this update.")
    if ctx.attempt == 1:
        time.sleep(0.5)  # until the result of the call is stored; otherwise the call would be repeated
        os.kill(os.getpid(), signal.SIGKILL)
    ctx.reply("Another process continued, and did not repeat the first message.")


def count(ctx: Context) -> None:
    """A session counts each update once, whatever crashes."""
    ctx.session["n"] = ctx.session.get("n", 0) + 1
    ctx.reply(f"Counted to {ctx.session['n']} in this chat.")


def progress(ctx: Context) -> None:
    sent = ctx.reply("▱▱▱▱▱▱▱▱▱▱")
    for tenth in range(1, 11):
        time.sleep(0.2)
        ctx.edit("▰" * tenth + "▱" * (10 - tenth), message=sent)
    ctx.edit("Done.", message=sent)


def photo(ctx: Context) -> None:
    ctx.reply_photo(Path(__file__).with_name("photo.png"), caption="A photo.")


def keyboard(ctx: Context) -> None:
    ctx.reply(
        "Choose below.", reply_markup={"keyboard": [[{"text": "/count"}, {"text": "/photo"}], [{"text": "/hide"}]]}
    )


def hide(ctx: Context) -> None:
    ctx.reply("The keyboard is gone.", reply_markup={"remove_keyboard": True})


def nothing(ctx: Context) -> None:
    """A button of another message, for example of an older version."""


def repeat(ctx: Context) -> None:
    ctx.reply(ctx.text or "I can only repeat text. Send me some!")


STOPS = {
    "Slow": slow,
    "Fail twice": fail_twice,
    "Bury": bury,
    "Kill me": die,
    "Count": count,
    "Progress": progress,
    "Photo": photo,
    "Keyboard": keyboard,
}
COMMANDS = {"/start": start, "/hide": hide, "/count": count, "/photo": photo, "/slow": slow}

bot = Bot(handle, never_retry=(NeverRetriedError,))
