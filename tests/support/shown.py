"""The messages of a chat as its user sees them."""

from chatlanes_sandbox.simulator import Simulator


def shown(simulator: Simulator, chat: int) -> dict[int, str]:
    """The texts of the messages in a chat, by message id."""
    texts: dict[int, str] = {}
    sent = 0
    for call in simulator.calls():
        params = call["params"]
        if not call["ok"] or str(params.get("chat_id")) != str(chat):
            continue
        if call["method"] == "sendMessage":
            sent += 1
            texts[sent] = params["text"]
        elif call["method"] == "editMessageText":
            texts[int(params["message_id"])] = params["text"]
        elif call["method"] == "deleteMessage":
            texts.pop(int(params["message_id"]), None)
    return texts
