"""Methods of Context for common calls, which take the ids from the update.

Each is one ctx.call and accepts any other parameter of its Bot API method by name; a given parameter overrides the
default. Raises what ctx.call raises, and a ValueError (addressing.py) if the update lacks what the call needs.
"""

from pathlib import Path
from typing import Any, BinaryIO

from chatlanes.bot.addressing import (
    WRITTEN_BY_USERS,
    NoChatError,
    WrongKindError,
    answer_to,
    deletion,
    editable,
    ephemeral_sent,
    message_of,
    query_of,
)
from chatlanes.telegram import NotModified
from chatlanes.updates import ParsedUpdate

Message = dict[str, Any]

#: A file to send: a pathlib.Path, its content, an open file, or a text: Telegram's file_id, or a URL that Telegram
#: downloads (with a local Bot API server also file:///…).
File = Path | bytes | BinaryIO | str

#: Telegram's rich Markdown, or an InputRichMessage: `{"html": …}`, `{"blocks": […]}`.
RichContent = str | dict[str, Any]

#: The title is required but not sent; clients show it in the list of results.
GUEST_TITLE_LENGTH = 64


class Shorthands:
    """All shorthands, as a base class of Context."""

    _parsed: ParsedUpdate

    def call(self, method: str, /, **params: Any) -> Any:
        raise NotImplementedError

    # -- replies to the chat, topic and business connection that the update came from: each returns the message sent;
    # in a guest's chat all except `reply` raise NoChatError. An ephemeral message is answered with an ephemeral one;
    # reply_album, which cannot be, raises NotEphemeralError

    def reply(self, text: str, /, **params: Any) -> Any:
        """Sends a text, with any parameters of sendMessage. Returns the message sent.

        An ephemeral message is answered with an ephemeral one. Raises chatlanes.bot.addressing.NoChatError if the
        update has no chat, and BotApiError.
        """
        if self._parsed.kind == "guest_message":
            return self.call("answerGuestQuery", **_guest_answer(self._parsed, text, params))
        return self._reply("sendMessage", **{"text": text, **params})

    def reply_photo(self, photo: File, /, caption: str | None = None, **params: Any) -> Any:
        return self._reply("sendPhoto", photo=photo, caption=caption, **params)

    def reply_document(self, document: File, /, caption: str | None = None, **params: Any) -> Any:
        """Sends any file under its own name."""
        return self._reply("sendDocument", document=document, caption=caption, **params)

    def reply_video(self, video: File, /, caption: str | None = None, **params: Any) -> Any:
        return self._reply("sendVideo", video=video, caption=caption, **params)

    def reply_animation(self, animation: File, /, caption: str | None = None, **params: Any) -> Any:
        return self._reply("sendAnimation", animation=animation, caption=caption, **params)

    def reply_audio(self, audio: File, /, caption: str | None = None, **params: Any) -> Any:
        return self._reply("sendAudio", audio=audio, caption=caption, **params)

    def reply_voice(self, voice: File, /, caption: str | None = None, **params: Any) -> Any:
        return self._reply("sendVoice", voice=voice, caption=caption, **params)

    def reply_sticker(self, sticker: File, /, **params: Any) -> Any:
        return self._reply("sendSticker", sticker=sticker, **params)

    def reply_album(self, media: list[dict[str, Any]], /, **params: Any) -> Any:
        """Sends 2 to 10 InputMedia items, whose `media` may be a file: `{"type": "photo", "media": Path("cat.jpg")}`.

        Returns the list of messages sent.
        """
        return self._reply("sendMediaGroup", media=media, **params)

    def reply_location(self, latitude: float, longitude: float, /, **params: Any) -> Any:
        return self._reply("sendLocation", latitude=latitude, longitude=longitude, **params)

    def reply_rich(self, content: RichContent, /, **params: Any) -> Any:
        """Sends a rich message of up to 32,768 characters, with headings, lists, tables and formulas."""
        return self._reply("sendRichMessage", rich_message=_rich(content), **params)

    def typing(self, action: str = "typing", /, **params: Any) -> Any:
        """Shows that the bot is typing, for 5 s or until its next message. Other actions: `upload_photo`, …

        Does nothing for an ephemeral message, because the whole group would see it.
        """
        if self._parsed.ephemeral is not None and "chat_id" not in params:
            return True
        return self._reply("sendChatAction", action=action, **params)

    def _reply(self, method: str, /, **params: Any) -> Any:
        return self.call(method, **answer_to(self._parsed, method, params))

    # -- calls for the message that the update is about: that of the pressed button, or the one that was sent.
    # `message` selects another one, as returned by a call: `sent = ctx.reply("0 %")`, later
    # `ctx.edit("50 %", message=sent)`. An ephemeral message can only be edited and deleted. Each raises NoMessageError
    # if there is none. Edits return the message, or True in three cases: an ephemeral message, the message of an inline
    # result (which takes edits only), and an edit that changes nothing.

    def edit(self, text: str, /, *, message: Message | None = None, **params: Any) -> Any:
        """Replaces the text. Without a reply_markup the buttons are removed."""
        return self._edit("editMessageText", message, text=text, **params)

    def edit_rich(self, content: RichContent, /, *, message: Message | None = None, **params: Any) -> Any:
        """Replaces the text by rich content. Without a reply_markup the buttons are removed."""
        return self._edit("editMessageText", message, rich_message=_rich(content), **params)

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
        if ephemeral := self._ephemeral(message):
            return self.call("deleteEphemeralMessage", **ephemeral)
        method, named = deletion(message_of(self._parsed, message))
        return self.call(method, **named)

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
        if edited := self._ephemeral(message):
            method = method.replace("edit", "editEphemeral", 1)
        else:
            edited = editable(self._parsed, message)
        try:
            return self.call(method, **{**edited, **params})
        except NotModified:
            return True

    def _ephemeral(self, message: Message | None) -> dict[str, Any] | None:
        """The parameters that identify the message, if it is an ephemeral one of the bot; otherwise None."""
        if message is None and self._parsed.kind in WRITTEN_BY_USERS:
            return None
        return ephemeral_sent(self._parsed.place if message is None else message)

    def _to(self, method: str, chat_id: int | str, message: Message | None, params: dict[str, Any]) -> Any:
        named = message_of(self._parsed, message)
        source = {"from_chat_id": named["chat_id"], "message_id": named["message_id"]}
        return self.call(method, **{"chat_id": chat_id, **source, **params})

    # -- answers to updates that require one: each returns True, and raises WrongKindError for an update of another kind

    def answer_callback(self, text: str | None = None, /, *, show_alert: bool | None = None, **params: Any) -> Any:
        """Answers a pressed button: ends its progress bar, with a notification or, with `show_alert`, an alert window.
        Telegram waits at most 150 s.
        """
        return self._answer("answerCallbackQuery", "callback_query", {"text": text, "show_alert": show_alert, **params})

    def answer_inline(self, results: list[dict[str, Any]], /, **params: Any) -> Any:
        """Answers an inline query with up to 50 InlineQueryResults. Telegram waits at most 30 s."""
        return self._answer("answerInlineQuery", "inline_query", {"results": results, **params})

    def answer_pre_checkout(self, *, refuse: str | None = None) -> Any:
        """Accepts a checkout or, with `refuse`, rejects it for this reason. Telegram waits 10 s."""
        ended = {"ok": refuse is None, "error_message": refuse}
        return self._answer("answerPreCheckoutQuery", "pre_checkout_query", ended)

    def answer_shipping(self, options: list[dict[str, Any]] | None = None, /, *, refuse: str | None = None) -> Any:
        """Offers shipping options for the address or, with `refuse`, rejects it for this reason. Raises ValueError
        unless exactly one of them is given.
        """
        if (options is None) == (refuse is None):
            raise ValueError("answer_shipping takes either the options or refuse='the reason'")
        ended = {"ok": refuse is None, "error_message": refuse, "shipping_options": options}
        return self._answer("answerShippingQuery", "shipping_query", ended)

    # A request to join has a query if the bot was chosen to decide such requests. Telegram waits 10 s for its answer.

    def approve_join(self) -> Any:
        """Approves the request to join."""
        if self._parsed.join_query is not None:
            return self._answer_join("approve")
        return self.call("approveChatJoinRequest", **self._asks_to_join())

    def decline_join(self) -> Any:
        """Declines the request to join."""
        if self._parsed.join_query is not None:
            return self._answer_join("decline")
        return self.call("declineChatJoinRequest", **self._asks_to_join())

    def queue_join(self) -> Any:
        """Leaves a request to join that has a query to the administrators."""
        return self._answer_join("queue")

    def open_join_app(self, url: str, /) -> Any:
        """Shows a Mini App to the user before a request to join that has a query is decided. The decision follows by
        `ctx.call("answerChatJoinRequestQuery", chat_join_request_query_id=…, result="approve")`.
        """
        return self.call("sendChatJoinRequestWebApp", **self._join_query(), web_app_url=url)

    def _answer_join(self, result: str) -> Any:
        return self.call("answerChatJoinRequestQuery", **self._join_query(), result=result)

    def _join_query(self) -> dict[str, str]:
        query = self._parsed.join_query
        if query is None:
            raise WrongKindError("this method answers a chat_join_request with a query_id, which the update lacks")
        return {"chat_join_request_query_id": query}

    def _answer(self, method: str, kind: str, params: dict[str, Any]) -> Any:
        return self.call(method, **{f"{kind}_id": query_of(self._parsed, kind), **params})

    def _asks_to_join(self) -> dict[str, int]:
        parsed = self._parsed
        if parsed.kind != "chat_join_request":
            raise WrongKindError(f"this method answers chat_join_request, but the update is of kind {parsed.kind}")
        if parsed.chat is None or parsed.user is None:
            raise NoChatError("this chat_join_request has no chat or no user")
        return {"chat_id": parsed.chat, "user_id": parsed.user}


def _rich(content: RichContent) -> dict[str, Any]:
    return {"markdown": content} if isinstance(content, str) else content


def _guest_answer(parsed: ParsedUpdate, text: str, params: dict[str, Any]) -> dict[str, Any]:
    """The bot is not a member of a guest's chat. It may answer the query once, with a result like an inline query's."""
    query = parsed.guest_query
    if query is None:
        raise NoChatError("this guest_message has no guest_query_id, without which a guest's chat accepts no reply")
    content = {"message_text": text, **params}
    # `uncertain` is of the call, not of the message.
    policy = {"uncertain": content.pop("uncertain")} if "uncertain" in content else {}
    markup = {"reply_markup": content.pop("reply_markup")} if "reply_markup" in content else {}
    article = {"type": "article", "id": "reply", "title": text[:GUEST_TITLE_LENGTH], **markup}
    return {**policy, "guest_query_id": query, "result": {**article, "input_message_content": content}}
