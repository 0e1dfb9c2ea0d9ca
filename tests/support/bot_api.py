"""Bot API requests of other programs than the poller."""

import requests

from chatlanes_sandbox.simulator import Simulator

BOT_ID = 123456
TOKEN = f"{BOT_ID}:SECRET-part-of_the-TOKEN"


def set_webhook(simulator: Simulator, url: str) -> None:
    """Set a webhook, as another program would; an empty url removes it."""
    answer = requests.post(f"{simulator.url}/bot{TOKEN}/setWebhook", json={"url": url}, timeout=30)
    assert answer.ok


def message(text: str = "hello", chat: int = 7) -> dict[str, object]:
    """An update without an id; the simulator assigns the next one."""
    sender = {"id": chat, "is_bot": False, "first_name": "Ann"}
    where = {"id": chat, "type": "private", "first_name": "Ann"}
    return {"message": {"message_id": 1, "date": 0, "chat": where, "from": sender, "text": text}}
