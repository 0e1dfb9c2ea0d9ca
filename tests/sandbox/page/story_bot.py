"""The bot of the page's tests: it does everything that a page has to show."""

from chatlanes.bot import Bot


class HopelessError(Exception):
    """Is not tried again."""


BUTTONS = {"inline_keyboard": [[{"text": text, "callback_data": text} for text in ("Tea", "Coffee", "Fail")]]}


def handle(ctx):
    if ctx.kind == "message":
        COMMANDS.get(ctx.text, repeat)(ctx)
    elif ctx.kind == "callback_query":
        pressed(ctx)
    elif ctx.kind == "edited_message":
        ctx.reply(f"Changed to: {ctx.text}")


def news(ctx):
    ctx.broadcast(range(1001, 1041), "sendMessage", text="News.")


def endless(ctx):
    ctx.broadcast(range(2001, 2901), "sendMessage", text="More.", rate=2)


def menu(ctx):
    ctx.reply("<b>What</b> would <i>you</i> like? <code>/no</code>", parse_mode="HTML", reply_markup=BUTTONS)


def pressed(ctx):
    if ctx.data == "Fail":
        raise HopelessError("there is no Fail")
    ctx.answer_callback(f"{ctx.data}, of course.", show_alert=ctx.data == "Coffee")
    ctx.edit(f"You get {ctx.data}.")


def keys(ctx):
    ctx.reply("Below.", reply_markup={"keyboard": [["Yes", "No"]]})


def fail(ctx):
    ctx.reply("Just before.")
    raise HopelessError("nothing helps <script>document.title = 'broken'</script>")


def gone(ctx):
    ctx.delete(message=ctx.reply("Never said."))
    ctx.react("👍")


def repeat(ctx):
    ctx.reply(f"You wrote: {ctx.text}" if ctx.text else "A fine picture.")


COMMANDS = {"/news": news, "/endless": endless, "/menu": menu, "/keys": keys, "/fail": fail, "/gone": gone}
bot = Bot(handle, never_retry=(HopelessError,))
