"""Answers an album, or several quick messages, once. COLLECT=messages BOT=examples.album_bot:handle"""


def handle(ctx):
    if ctx.photos:
        ctx.reply(f"{len(ctx.photos)} photos: {ctx.text}")
    elif ctx.text:
        ctx.reply(f"{len(ctx.updates)} messages: {' / '.join(ctx.texts)}")
