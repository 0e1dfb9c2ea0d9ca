"""Which call answers an update with a text. Pure.

Promises that a reply goes where the update came from: its chat, its topic, its business connection.
"""

from typing import Any

from chatlanes.bot.addressing import NoChatError, chat_of_reply
from chatlanes.updates.parsing import Anatomy

__all__ = ["NoChatError", "reply_call"]

#: The list of results shows it; only the text itself is sent.
GUEST_TITLE_LENGTH = 64


def reply_call(opened: Anatomy, text: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Method and parameters; `params` wins. Raises NoChatError."""
    if opened.kind == "guest_message":
        return "answerGuestQuery", _guest_answer(opened, text, params)
    return "sendMessage", {**chat_of_reply(opened), "text": text, **params}


def _guest_answer(opened: Anatomy, text: str, params: dict[str, Any]) -> dict[str, Any]:
    """The bot is no member of a guest's chat: it may answer the query, once, with a result as for an inline query."""
    query = opened.guest_query
    if query is None:
        raise NoChatError("this guest_message has no guest_query_id, and a guest's chat takes nothing but its answer")
    content = {"message_text": text, **params}
    policy = (
        {"uncertain": content.pop("uncertain")} if "uncertain" in content else {}
    )  # of the call, not of the message
    markup = {"reply_markup": content.pop("reply_markup")} if "reply_markup" in content else {}
    article = {"type": "article", "id": "reply", "title": text[:GUEST_TITLE_LENGTH], **markup}
    return {**policy, "guest_query_id": query, "result": {**article, "input_message_content": content}}
