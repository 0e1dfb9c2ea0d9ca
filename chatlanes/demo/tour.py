"""A tour of what is promised, one button each: see it happen in the sandbox's page.

Run it with `chatlanes sandbox --bot chatlanes.demo.tour:bot`, open the page and press /start.
What you write is repeated.
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
        ctx.answer_callback(None if ctx.data in STOPS else "This button is none of mine.")
        STOPS.get(ctx.data, nothing)(ctx)
    elif ctx.kind == "message":
        COMMANDS.get(ctx.text.partition("@")[0], repeat)(ctx)


def start(ctx: Context) -> None:
    name = ctx.update["message"]["from"]["first_name"]
    ctx.reply(
        f"Hello {name}! Press what you want to see. Anything else that you write is repeated, in its order.",
        reply_markup={"inline_keyboard": rows([{"text": stop, "callback_data": stop} for stop in STOPS])},
    )


def rows(buttons: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    """Two side by side."""
    return [buttons[at : at + 2] for at in range(0, len(buttons), 2)]


def slow(ctx: Context) -> None:
    """The others of this chat wait, those of other chats do not."""
    ctx.reply(f"This takes {SLOW_S} s. Write me something meanwhile, here and in another chat.")
    ctx.typing()
    time.sleep(SLOW_S)
    ctx.reply("Done. What you wrote here comes now, in its order.")


def fail_twice(ctx: Context) -> None:
    """A later attempt does not send again what was sent."""
    ctx.reply("I ask the bank …")
    if ctx.attempt < 3:
        raise ConnectionError(f"the bank does not answer (attempt {ctx.attempt})")
    ctx.reply(f"Attempt {ctx.attempt} worked. My first message was sent once all the same.")


def bury(ctx: Context) -> None:
    """What cannot be mended goes to the dead letters, and the chat goes on."""
    raise NeverRetriedError("this one is buried, with its traceback; look at it, then replay it")


def die(ctx: Context) -> None:
    """As an update that runs out of memory: its process is gone, the update is not."""
    ctx.reply("My process is killed now, in the middle of this.")
    if ctx.attempt == 1:
        time.sleep(0.5)  # so that it is known that the message was sent; else it would be sent again
        os.kill(os.getpid(), signal.SIGKILL)
    ctx.reply("Another one went on, and did not send the first message again.")


def count(ctx: Context) -> None:
    """A session counts once, whatever dies."""
    ctx.session["n"] = ctx.session.get("n", 0) + 1
    ctx.reply(f"Counted to {ctx.session['n']} in this chat.")


def progress(ctx: Context) -> None:
    sent = ctx.reply("▱▱▱▱▱▱▱▱▱▱")
    for tenth in range(1, 11):
        time.sleep(0.2)
        ctx.edit("▰" * tenth + "▱" * (10 - tenth), message=sent)
    ctx.edit("Ready.", message=sent)


def photo(ctx: Context) -> None:
    ctx.reply_photo(Path(__file__).with_name("photo.png"), caption="A photo.")


def keyboard(ctx: Context) -> None:
    ctx.reply(
        "Choose below.", reply_markup={"keyboard": [[{"text": "/count"}, {"text": "/photo"}], [{"text": "/hide"}]]}
    )


def hide(ctx: Context) -> None:
    ctx.reply("The keyboard is gone.", reply_markup={"remove_keyboard": True})


def nothing(ctx: Context) -> None:
    """A button of another message, say of an older version."""


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
