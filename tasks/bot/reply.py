"""Which call answers an update. Pure.

Promises that a reply goes where the update came from: its chat, its topic, its business connection. Does not know
whether Telegram will let it pass: a user without a chat, say of an inline query, is answered in private, which he must
have allowed by starting the bot.
"""

from typing import Any

from tasks.anatomy import Anatomy, number, part

#: The list of results shows it; only the text itself is sent.
GUEST_TITLE_LENGTH = 64


class NoChatError(ValueError):
    """The update came from no chat, so there is nowhere to reply to."""


def reply_call(opened: Anatomy, text: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Method and parameters; `params` wins. Raises NoChatError."""
    if opened.kind == "guest_message":
        return "answerGuestQuery", _guest_answer(opened, text, params)
    chat = opened.chat if opened.chat is not None else opened.user
    if chat is None:
        raise NoChatError(f"an update of kind {opened.kind} has no chat to reply to; name one with ctx.call")
    return "sendMessage", {"chat_id": chat, **_corner(opened), "text": text, **params}


def _corner(opened: Anatomy) -> dict[str, Any]:
    """Where in the chat."""
    corner = {
        "business_connection_id": opened.business_connection,
        "message_thread_id": opened.topic,
        "direct_messages_topic_id": number(part(opened.place, "direct_messages_topic").get("topic_id")),
    }
    return {name: value for name, value in corner.items() if value is not None}


def _guest_answer(opened: Anatomy, text: str, params: dict[str, Any]) -> dict[str, Any]:
    """The bot is no member of a guest's chat: it may answer the query, once, with a result as for an inline query."""
    query = opened.guest_query
    if query is None:
        raise NoChatError("this guest_message has no guest_query_id, and a guest's chat takes nothing but its answer")
    content = {"message_text": text, **params}
    markup = {"reply_markup": content.pop("reply_markup")} if "reply_markup" in content else {}
    article = {"type": "article", "id": "reply", "title": text[:GUEST_TITLE_LENGTH], **markup}
    return {"guest_query_id": query, "result": {**article, "input_message_content": content}}
