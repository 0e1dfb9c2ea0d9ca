"""To where the update came from: its chat, its topic, its business connection. Each returns the message sent."""

from typing import Any

from chatlanes.bot.addressing import NoChatError, chat_of_reply
from chatlanes.bot.shorthands.caller import Caller, File
from chatlanes.updates import ParsedUpdate


class Replies(Caller):
    """All but `reply` raise NoChatError in a guest's chat too."""

    def reply(self, text: str, /, **params: Any) -> Any:
        """Sends text to where the update came from, with any parameters of sendMessage. Returns the message sent.

        Raises chatlanes.bot.addressing.NoChatError where there is no chat, and BotApiError.
        """
        method, wanted = reply_call(self._parsed, text, params)
        return self.call(method, **wanted)

    def reply_photo(self, photo: File, /, caption: str | None = None, **params: Any) -> Any:
        return self._reply("sendPhoto", photo=photo, caption=caption, **params)

    def reply_document(self, document: File, /, caption: str | None = None, **params: Any) -> Any:
        """Any file; Telegram shows it under its own name."""
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
        """2 to 10 items as InputMedia, whose `media` may be a file: `{"type": "photo", "media": Path("cat.jpg")}`.

        Returns the list of messages sent.
        """
        return self._reply("sendMediaGroup", media=media, **params)

    def reply_location(self, latitude: float, longitude: float, /, **params: Any) -> Any:
        return self._reply("sendLocation", latitude=latitude, longitude=longitude, **params)

    def typing(self, action: str = "typing", /, **params: Any) -> Any:
        """Shows for 5 s, or until the next message, that the bot is busy; other actions: `upload_photo`, …"""
        return self._reply("sendChatAction", action=action, **params)

    def _reply(self, method: str, /, **params: Any) -> Any:
        return self.call(method, **{**chat_of_reply(self._parsed), **params})


__all__ = ["NoChatError", "reply_call"]

#: The list of results shows it; only the text itself is sent.
GUEST_TITLE_LENGTH = 64


def reply_call(parsed: ParsedUpdate, text: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Method and parameters; `params` wins. Raises NoChatError."""
    if parsed.kind == "guest_message":
        return "answerGuestQuery", _guest_answer(parsed, text, params)
    return "sendMessage", {**chat_of_reply(parsed), "text": text, **params}


def _guest_answer(parsed: ParsedUpdate, text: str, params: dict[str, Any]) -> dict[str, Any]:
    """The bot is no member of a guest's chat: it may answer the query, once, with a result as for an inline query."""
    query = parsed.guest_query
    if query is None:
        raise NoChatError("this guest_message has no guest_query_id, and a guest's chat takes nothing but its answer")
    content = {"message_text": text, **params}
    policy = (
        {"uncertain": content.pop("uncertain")} if "uncertain" in content else {}
    )  # of the call, not of the message
    markup = {"reply_markup": content.pop("reply_markup")} if "reply_markup" in content else {}
    article = {"type": "article", "id": "reply", "title": text[:GUEST_TITLE_LENGTH], **markup}
    return {**policy, "guest_query_id": query, "result": {**article, "input_message_content": content}}
