"""The smallest useful bot: it repeats messages.

`BOT=chatlanes.demo.echo:handle` names it. The updates of one chat run one at a time and in order, so the handler needs
no locks.
"""

from chatlanes.bot.context import Context

#: Content that a person sends and a bot can answer; service messages (joins, pins, titles) are ignored.
CONTENT = {
    *("animation", "audio", "document", "paid_media", "photo", "rich_message", "sticker", "story"),
    *("video", "video_note", "voice", "contact", "dice", "location", "poll", "venue"),
}


def handle(ctx: Context) -> None:
    if ctx.kind in ("message", "guest_message"):
        _answer(ctx)
    elif ctx.kind == "callback_query":
        ctx.call("answerCallbackQuery", callback_query_id=ctx.update["callback_query"]["id"], text="Thank you.")
    elif ctx.kind == "inline_query":
        ctx.call("answerInlineQuery", inline_query_id=ctx.update["inline_query"]["id"], results=[])


def _answer(ctx: Context) -> None:
    message = ctx.update[ctx.kind]
    if "text" in message:
        ctx.reply(message["text"])
    elif CONTENT & message.keys():
        ctx.reply("I can only repeat text. Send me some!")
