"""Finds the chat to reply to and the message that an update is about. Pure.

Returns parameters for the Bot API, or raises an error that names what the update lacks. Telegram may still refuse the
call: an update without a chat, such as an inline query, is answered in private, which requires that the user started
the bot.
"""

from typing import Any

from chatlanes.updates import ParsedUpdate, number, object_id, part, text_id

WRITTEN_BY_USERS = frozenset({"message", "edited_message", "guest_message"})


class NoChatError(ValueError):
    """The update has no chat to reply to."""


class NoMessageError(ValueError):
    """The update is not about a message that the bot can refer to."""


class NotEphemeralError(ValueError):
    """The update is about an ephemeral message, and the whole group would see the answer."""


class WrongKindError(ValueError):
    """The method answers updates of another kind."""


def chat_of_reply(parsed: ParsedUpdate) -> dict[str, Any]:
    """`chat_id`, and the topic and business connection if there are any. Raises NoChatError."""
    if parsed.kind == "guest_message":
        raise NoChatError("a guest's chat accepts only one ctx.reply with a text")
    chat = parsed.chat if parsed.chat is not None else parsed.user
    if chat is None:
        raise NoChatError(f"an update of kind {parsed.kind} has no chat to reply to; name one with ctx.call")
    return {"chat_id": chat, **_place_in_chat(parsed)}


def _place_in_chat(parsed: ParsedUpdate) -> dict[str, Any]:
    return _known(
        business_connection_id=parsed.business_connection,
        message_thread_id=parsed.topic,
        direct_messages_topic_id=number(part(parsed.place, "direct_messages_topic").get("topic_id")),
    )


#: Methods without ephemeral_message_parameters.
_PUBLIC = frozenset({"sendMediaGroup"})


def answer_to(parsed: ParsedUpdate, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a call that answers the update; `params` override the defaults. An ephemeral message is
    answered with an ephemeral one. Raises NoChatError and NotEphemeralError.
    """
    target = chat_of_reply(parsed)
    if parsed.ephemeral is None or params.get("chat_id", target["chat_id"]) != target["chat_id"]:
        return {**target, **params}
    if method in _PUBLIC or parsed.user is None:
        raise NotEphemeralError(
            f"an ephemeral message is answered with an ephemeral one, which {method} cannot send; to answer before the "
            "whole group, name the chat: ctx.call(…, chat_id=ctx.chat_id)"
        )
    return {**target, **_private(parsed, parsed.ephemeral), **params}


def _private(parsed: ParsedUpdate, ephemeral: int) -> dict[str, Any]:
    """For 15 s Telegram accepts such an answer from any bot that names the message or the query; later only from an
    administrator.
    """
    receiver = {"receiver_user_id": parsed.user}
    if parsed.kind == "callback_query":
        query = _known(callback_query_id=text_id(parsed.body.get("id")))
        return {"ephemeral_message_parameters": {**receiver, **query}}
    return {"ephemeral_message_parameters": receiver, "reply_parameters": {"ephemeral_message_id": ephemeral}}


def ephemeral_sent(message: dict[str, Any]) -> dict[str, Any] | None:
    """The parameters that identify an ephemeral message of the bot; None for any other message."""
    found = {
        "chat_id": object_id(message, "chat"),
        "receiver_user_id": object_id(message, "receiver_user"),
        "ephemeral_message_id": number(message.get("ephemeral_message_id")),
    }
    return None if None in found.values() else found


def message_of(parsed: ParsedUpdate, message: dict[str, Any] | None = None) -> dict[str, Any]:
    """The parameters that identify `message`, by default the message the update is about. Raises NoMessageError."""
    place = parsed.place if message is None else message
    chat, message_id = object_id(place, "chat"), number(place.get("message_id"))
    if chat is None or message_id is None:
        found = f"an update of kind {parsed.kind}" if message is None else "the object given as `message`"
        raise NoMessageError(f"{found} does not identify a message; pass a sent message, such as message=ctx.reply(…)")
    if place.get("ephemeral_message_id"):
        raise NoMessageError("an ephemeral message can only be answered, and one of the bot edited and deleted")
    business = text_id(place.get("business_connection_id"))
    return {"chat_id": chat, "message_id": message_id, **_known(business_connection_id=business)}


def deletion(named: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method that deletes a message, and its parameters. `named` identifies the message, as message_of does, or is
    an ephemeral message.
    """
    if ephemeral := ephemeral_sent(named):
        return "deleteEphemeralMessage", ephemeral
    message_id, connection = named["message_id"], named.get("business_connection_id")
    if connection is not None:
        return "deleteBusinessMessages", {"business_connection_id": connection, "message_ids": [message_id]}
    return "deleteMessage", {"chat_id": named["chat_id"], "message_id": message_id}


def editable(parsed: ParsedUpdate, message: dict[str, Any] | None = None) -> dict[str, Any]:
    """Like message_of, but also identifies the message of an inline result. Raises NoMessageError."""
    if message is not None:
        return message_of(parsed, message)
    if parsed.kind in WRITTEN_BY_USERS:
        raise NoMessageError(
            f"a bot cannot edit a user's message ({parsed.kind}); pass one of its own, such as message=ctx.reply(…)"
        )
    inline = text_id(parsed.body.get("inline_message_id"))
    return message_of(parsed) if inline is None else {"inline_message_id": inline}


def query_of(parsed: ParsedUpdate, *kinds: str) -> str:
    """The id of the query to answer. Raises WrongKindError."""
    query = text_id(parsed.body.get("id"))
    if parsed.kind not in kinds or query is None:
        raise WrongKindError(f"this method answers {' and '.join(kinds)}, but the update is of kind {parsed.kind}")
    return query


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
