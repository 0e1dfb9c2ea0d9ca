"""To where the update came from: its chat, its topic, its business connection. Each returns the message sent."""

from typing import Any

from chatlanes.bot.addressing import chat_of_reply
from chatlanes.bot.reply import reply_call
from chatlanes.bot.shorthands.caller import Caller, File


class Replies(Caller):
    """All but `reply` raise NoChatError in a guest's chat too."""

    def reply(self, text: str, /, **params: Any) -> Any:
        """Sends text to where the update came from, with any parameters of sendMessage. Returns the message sent.

        Raises chatlanes.bot.addressing.NoChatError where there is no chat, and BotApiError.
        """
        method, wanted = reply_call(self._opened, text, params)
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
        return self.call(method, **{**chat_of_reply(self._opened), **params})
