"""Answers to what asks for one: buttons, inline queries, payments, requests to join.

Each raises chatlanes.bot.addressing.WrongKindError for an update of another kind.
"""

from typing import Any

from chatlanes.bot.addressing import NoChatError, WrongKindError, query_of
from chatlanes.bot.shorthands.caller import Caller


class Answers(Caller):
    """Each returns True."""

    def answer_callback(self, text: str | None = None, /, *, show_alert: bool | None = None, **params: Any) -> Any:
        """Ends the button's progress bar, with a note or, `show_alert`, a window. Telegram waits 150 s at most."""
        query = query_of(self._parsed, "callback_query")
        return self.call(
            "answerCallbackQuery", **{"callback_query_id": query, "text": text, "show_alert": show_alert, **params}
        )

    def answer_inline(self, results: list[dict[str, Any]], /, **params: Any) -> Any:
        """Up to 50 InlineQueryResults. Telegram waits 30 s at most."""
        query = query_of(self._parsed, "inline_query")
        return self.call("answerInlineQuery", **{"inline_query_id": query, "results": results, **params})

    def answer_pre_checkout(self, *, refuse: str | None = None) -> Any:
        """The goods are there; or not, and this is why. Telegram waits 10 s."""
        return self._checkout("answerPreCheckoutQuery", "pre_checkout_query", refuse)

    def answer_shipping(self, options: list[dict[str, Any]] | None = None, /, *, refuse: str | None = None) -> Any:
        """The ways of shipping to this address; or none, and this is why. Raises ValueError for neither."""
        if (options is None) == (refuse is None):
            raise ValueError("answer_shipping takes either the options or refuse='why not'")
        return self._checkout("answerShippingQuery", "shipping_query", refuse, shipping_options=options)

    def approve_join(self) -> Any:
        """Let in who asked to join."""
        return self.call("approveChatJoinRequest", **self._asks_to_join())

    def decline_join(self) -> Any:
        return self.call("declineChatJoinRequest", **self._asks_to_join())

    def _checkout(self, method: str, kind: str, refuse: str | None, **params: Any) -> Any:
        query = query_of(self._parsed, kind)
        return self.call(method, **{f"{kind}_id": query, "ok": refuse is None, "error_message": refuse, **params})

    def _asks_to_join(self) -> dict[str, int]:
        parsed = self._parsed
        if parsed.kind != "chat_join_request":
            raise WrongKindError(f"this answers chat_join_request, and the update is of kind {parsed.kind}")
        if parsed.chat is None or parsed.user is None:
            raise NoChatError("this chat_join_request names no chat or no user")
        return {"chat_id": parsed.chat, "user_id": parsed.user}
