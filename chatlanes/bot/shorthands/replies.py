"""Replies to the chat, topic and business connection that the update came from. Each returns the message sent."""

from typing import Any

from chatlanes.bot.addressing import NoChatError, chat_of_reply
from chatlanes.bot.shorthands.caller import Caller, File
from chatlanes.updates import ParsedUpdate


class Replies(Caller):
    """Replies. In a guest's chat all except `reply` raise NoChatError."""

    def reply(self, text: str, /, **params: Any) -> Any:
        """Sends a text, with any parameters of sendMessage. Returns the message sent.

        Raises chatlanes.bot.addressing.NoChatError if the update has no chat, and BotApiError.
        """
        method, wanted = reply_call(self._parsed, text, params)
        return self.call(method, **wanted)

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

    def typing(self, action: str = "typing", /, **params: Any) -> Any:
        """Shows that the bot is typing, for 5 s or until its next message. Other actions: `upload_photo`, …"""
        return self._reply("sendChatAction", action=action, **params)

    def _reply(self, method: str, /, **params: Any) -> Any:
        return self.call(method, **{**chat_of_reply(self._parsed), **params})


__all__ = ["NoChatError", "reply_call"]

#: The title is required but not sent; clients show it in the list of results.
GUEST_TITLE_LENGTH = 64


def reply_call(parsed: ParsedUpdate, text: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method and its parameters; `params` override the defaults. Raises NoChatError."""
    if parsed.kind == "guest_message":
        return "answerGuestQuery", _guest_answer(parsed, text, params)
    return "sendMessage", {**chat_of_reply(parsed), "text": text, **params}


def _guest_answer(parsed: ParsedUpdate, text: str, params: dict[str, Any]) -> dict[str, Any]:
    """The bot is not a member of a guest's chat. It may answer the query once, with a result like an inline query's."""
    query = parsed.guest_query
    if query is None:
        raise NoChatError("this guest_message has no guest_query_id, without which a guest's chat accepts no reply")
    content = {"message_text": text, **params}
    policy = (
        {"uncertain": content.pop("uncertain")} if "uncertain" in content else {}
    )  # of the call, not of the message
    markup = {"reply_markup": content.pop("reply_markup")} if "reply_markup" in content else {}
    article = {"type": "article", "id": "reply", "title": text[:GUEST_TITLE_LENGTH], **markup}
    return {**policy, "guest_query_id": query, "result": {**article, "input_message_content": content}}
