"""What the simulator knows of each method. Upper and lower case are the same, as at Telegram."""

#: Sends that do not answer with the message they sent.
_NO_MESSAGE = frozenset(
    {"sendChatAction", "sendMessageDraft", "sendRichMessageDraft", "sendChatJoinRequestWebApp", "sendGift"}
    | {"sendMediaGroup"}
)


def gives_message(method: str) -> bool:
    """True if the method puts one message into a chat and answers with it."""
    return method == "forwardMessage" or (method.startswith("send") and method not in _NO_MESSAGE)


def edits_message(method: str) -> bool:
    return method.startswith(("editMessage", "stopMessage"))


def needs_chat(method: str) -> bool:
    """True if Telegram refuses the method without a chat_id."""
    return gives_message(method) or method in _NEEDS_CHAT


_NEEDS_CHAT = frozenset(
    {"sendMediaGroup", "sendChatAction", "copyMessage", "copyMessages", "forwardMessages", "deleteMessage"}
    | {"deleteMessages", "setMessageReaction", "pinChatMessage", "getChat", "getChatMember", "leaveChat"}
)
