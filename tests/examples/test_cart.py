"""The session example, tested as a user would test it: with a session assigned by hand."""

from __future__ import annotations

from typing import Any

from chatlanes.bot import Context
from examples.cart import handle


class CartApi:
    """Records the sent texts."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def call(self, method: str, /, **params: Any) -> Any:
        self.said.append(params["text"])


def test_items_stay_until_the_cart_is_emptied() -> None:
    api, session = CartApi(), {}
    for text in ("apples", "pears", "/cart", "/empty", "/cart"):
        ctx = Context({"update_id": 1, "message": {"chat": {"id": 7}, "text": text}}, api)
        ctx.session = session
        handle(ctx)
    assert api.said == [
        "In your cart: apples",
        "In your cart: apples, pears",
        "In your cart: apples, pears",
        "Your cart is empty.",
        "In your cart: nothing yet",
    ]
