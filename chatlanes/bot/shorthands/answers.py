"""Answers to updates that require one: buttons, inline queries, payments, join requests.

Each raises chatlanes.bot.addressing.WrongKindError for an update of another kind.
"""

from typing import Any

from chatlanes.bot.addressing import NoChatError, WrongKindError, query_of
from chatlanes.bot.shorthands.caller import Caller


class Answers(Caller):
    """Answers. Each returns True."""

    def answer_callback(self, text: str | None = None, /, *, show_alert: bool | None = None, **params: Any) -> Any:
        """Answers a pressed button: ends its progress bar, with a notification or, with `show_alert`, an alert window.
        Telegram waits at most 150 s.
        """
        query = query_of(self._parsed, "callback_query")
        return self.call(
            "answerCallbackQuery", **{"callback_query_id": query, "text": text, "show_alert": show_alert, **params}
        )

    def answer_inline(self, results: list[dict[str, Any]], /, **params: Any) -> Any:
        """Answers an inline query with up to 50 InlineQueryResults. Telegram waits at most 30 s."""
        query = query_of(self._parsed, "inline_query")
        return self.call("answerInlineQuery", **{"inline_query_id": query, "results": results, **params})

    def answer_pre_checkout(self, *, refuse: str | None = None) -> Any:
        """Accepts a checkout or, with `refuse`, rejects it for this reason. Telegram waits 10 s."""
        return self._checkout("answerPreCheckoutQuery", "pre_checkout_query", refuse)

    def answer_shipping(self, options: list[dict[str, Any]] | None = None, /, *, refuse: str | None = None) -> Any:
        """Offers shipping options for the address or, with `refuse`, rejects it for this reason. Raises ValueError
        unless exactly one of them is given.
        """
        if (options is None) == (refuse is None):
            raise ValueError("answer_shipping takes either the options or refuse='the reason'")
        return self._checkout("answerShippingQuery", "shipping_query", refuse, shipping_options=options)

    def approve_join(self) -> Any:
        """Approves the join request."""
        return self.call("approveChatJoinRequest", **self._asks_to_join())

    def decline_join(self) -> Any:
        """Declines the join request."""
        return self.call("declineChatJoinRequest", **self._asks_to_join())

    def _checkout(self, method: str, kind: str, refuse: str | None, **params: Any) -> Any:
        query = query_of(self._parsed, kind)
        return self.call(method, **{f"{kind}_id": query, "ok": refuse is None, "error_message": refuse, **params})

    def _asks_to_join(self) -> dict[str, int]:
        parsed = self._parsed
        if parsed.kind != "chat_join_request":
            raise WrongKindError(f"this method answers chat_join_request, but the update is of kind {parsed.kind}")
        if parsed.chat is None or parsed.user is None:
            raise NoChatError("this chat_join_request has no chat or no user")
        return {"chat_id": parsed.chat, "user_id": parsed.user}
