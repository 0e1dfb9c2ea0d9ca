"""With the message that the update is about: the one under the button, the one that was written, or any other.

`message` is another one, as a call returned it: `sent = ctx.reply("0 %")`, later `ctx.edit("50 %", message=sent)`.
Each raises chatlanes.bot.addressing.NoMessageError where there is none.
"""

from typing import Any

from chatlanes.bot.addressing import editable, message_of
from chatlanes.bot.shorthands.caller import Caller
from chatlanes.telegram import NotModified

Message = dict[str, Any]


class Messages(Caller):
    """Edits return the message, or True: of an inline result, and where there was nothing to change.

    They reach the message of an inline result too; the others do not.
    """

    def edit(self, text: str, /, *, message: Message | None = None, **params: Any) -> Any:
        """Its text. Without a reply_markup its buttons go."""
        return self._edit("editMessageText", message, text=text, **params)

    def edit_caption(self, caption: str, /, *, message: Message | None = None, **params: Any) -> Any:
        return self._edit("editMessageCaption", message, caption=caption, **params)

    def edit_markup(
        self, reply_markup: dict[str, Any] | None = None, /, *, message: Message | None = None, **params: Any
    ) -> Any:
        """Its buttons; None takes them away."""
        return self._edit("editMessageReplyMarkup", message, reply_markup=reply_markup, **params)

    def delete(self, *, message: Message | None = None) -> Any:
        """Telegram lets a bot delete most messages for 48 h."""
        named = message_of(self._parsed, message)
        if "business_connection_id" in named:
            connection, deleted = named["business_connection_id"], [named["message_id"]]
            return self.call("deleteBusinessMessages", business_connection_id=connection, message_ids=deleted)
        return self.call("deleteMessage", **named)

    def react(self, emoji: str | None, /, *, message: Message | None = None, **params: Any) -> Any:
        """One of the emoji that Telegram allows, instead of the bot's reaction so far; None takes it back."""
        reaction = [] if emoji is None else [{"type": "emoji", "emoji": emoji}]
        return self.call("setMessageReaction", **{**message_of(self._parsed, message), "reaction": reaction, **params})

    def pin(self, *, message: Message | None = None, **params: Any) -> Any:
        return self.call("pinChatMessage", **{**message_of(self._parsed, message), **params})

    def copy_to(self, chat_id: int | str, /, *, message: Message | None = None, **params: Any) -> Any:
        """As a new message of the bot. Returns its message_id, as {"message_id": …}."""
        return self._to("copyMessage", chat_id, message, params)

    def forward_to(self, chat_id: int | str, /, *, message: Message | None = None, **params: Any) -> Any:
        return self._to("forwardMessage", chat_id, message, params)

    def _edit(self, method: str, message: Message | None, /, **params: Any) -> Any:
        """A handler that runs again may find its edit done."""
        try:
            return self.call(method, **{**editable(self._parsed, message), **params})
        except NotModified:
            return True

    def _to(self, method: str, chat_id: int | str, message: Message | None, params: dict[str, Any]) -> Any:
        named = message_of(self._parsed, message)
        source = {"from_chat_id": named["chat_id"], "message_id": named["message_id"]}
        return self.call(method, **{"chat_id": chat_id, **source, **params})
