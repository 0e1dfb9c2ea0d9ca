"""A shopping cart per chat: a message adds an item, /cart shows the cart, /empty empties it.

Run it with `BOT=examples.cart:handle`. The cart is in ctx.session: each item is added once, even after a crash.
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
