"""The same bot as a plain function. BOT=examples.plain_bot:handle"""

from pathlib import Path

BUTTON = {"inline_keyboard": [[{"text": "Press me", "callback_data": "pressed"}]]}


def handle(ctx):
    if ctx.kind == "callback_query":
        ctx.answer_callback("Thank you.")
    elif ctx.kind == "message":
        COMMANDS.get(ctx.text, echo)(ctx)


def start(ctx):
    ctx.reply("Send me something, or /count, /button, /photo.")


def count(ctx):
    ctx.session["n"] = ctx.session.get("n", 0) + 1
    ctx.reply(str(ctx.session["n"]))


def button(ctx):
    ctx.reply("Here it is.", reply_markup=BUTTON)


def photo(ctx):
    ctx.reply_photo(Path(__file__).with_name("photo.png"))


def echo(ctx):
    if ctx.text:
        ctx.reply(ctx.text)


COMMANDS = {"/start": start, "/count": count, "/button": button, "/photo": photo}
