"""A shopping cart for each chat: what is sent is put into it, /cart shows it, /empty empties it.

Run it with `BOT=examples.cart:handle`. The cart is in ctx.session: each thing is in it once, whatever dies meanwhile.
"""

from chatlanes import Context


def handle(ctx: Context) -> None:
    if ctx.kind != "message" or not ctx.text:
        return
    if ctx.text == "/empty":
        ctx.session.clear()
        ctx.reply("Your cart is empty.")
        return
    cart = ctx.session.setdefault("cart", [])
    if ctx.text != "/cart":
        cart.append(ctx.text)
    ctx.reply("In your cart: " + (", ".join(cart) or "nothing yet"))
