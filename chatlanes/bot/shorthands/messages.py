"""Calls for the message that the update is about: the message of the pressed button, or the one that was sent.

`message` selects another message, as returned by a call: `sent = ctx.reply("0 %")`, later
`ctx.edit("50 %", message=sent)`. Each raises chatlanes.bot.addressing.NoMessageError if there is no message.
"""

from typing import Any

from chatlanes.bot.addressing import editable, message_of
from chatlanes.bot.shorthands.caller import Caller
from chatlanes.telegram import NotModified

Message = dict[str, Any]


class Messages(Caller):
    """Edits return the message; they return True for the message of an inline result, and if nothing had to change.

    Only edits work with the message of an inline result.
    """

    def edit(self, text: str, /, *, message: Message | None = None, **params: Any) -> Any:
        """Replaces the text. Without a reply_markup the buttons are removed."""
        return self._edit("editMessageText", message, text=text, **params)

    def edit_caption(self, caption: str, /, *, message: Message | None = None, **params: Any) -> Any:
        """Replaces the caption."""
        return self._edit("editMessageCaption", message, caption=caption, **params)

    def edit_markup(
        self, reply_markup: dict[str, Any] | None = None, /, *, message: Message | None = None, **params: Any
    ) -> Any:
        """Replaces the buttons; None removes them."""
        return self._edit("editMessageReplyMarkup", message, reply_markup=reply_markup, **params)

    def delete(self, *, message: Message | None = None) -> Any:
        """Deletes the message. Telegram allows this for most messages within 48 h."""
        named = message_of(self._parsed, message)
        if "business_connection_id" in named:
            connection, deleted = named["business_connection_id"], [named["message_id"]]
            return self.call("deleteBusinessMessages", business_connection_id=connection, message_ids=deleted)
        return self.call("deleteMessage", **named)

    def react(self, emoji: str | None, /, *, message: Message | None = None, **params: Any) -> Any:
        """Sets the bot's reaction to one of the emoji that Telegram allows; None removes it."""
        reaction = [] if emoji is None else [{"type": "emoji", "emoji": emoji}]
        return self.call("setMessageReaction", **{**message_of(self._parsed, message), "reaction": reaction, **params})

    def pin(self, *, message: Message | None = None, **params: Any) -> Any:
        """Pins the message."""
        return self.call("pinChatMessage", **{**message_of(self._parsed, message), **params})

    def copy_to(self, chat_id: int | str, /, *, message: Message | None = None, **params: Any) -> Any:
        """Sends a copy of the message to a chat. Returns {"message_id": …}."""
        return self._to("copyMessage", chat_id, message, params)

    def forward_to(self, chat_id: int | str, /, *, message: Message | None = None, **params: Any) -> Any:
        """Forwards the message to a chat. Returns the message sent."""
        return self._to("forwardMessage", chat_id, message, params)

    def _edit(self, method: str, message: Message | None, /, **params: Any) -> Any:
        """NotModified counts as success, because an earlier run of the handler may have made the edit."""
        try:
            return self.call(method, **{**editable(self._parsed, message), **params})
        except NotModified:
            return True

    def _to(self, method: str, chat_id: int | str, message: Message | None, params: dict[str, Any]) -> Any:
        named = message_of(self._parsed, message)
        source = {"from_chat_id": named["chat_id"], "message_id": named["message_id"]}
        return self.call(method, **{"chat_id": chat_id, **source, **params})
