"""Settings of the webhook receiver, and a check whether it (or a bare app) answers."""

from __future__ import annotations

import requests

from bench.load import simulator
from celery_lanes.embedded_server import HOST
from chatlanes.settings import secret_from

PATH = "/hook"
SECRET = secret_from(simulator.TOKEN)
#: Telegram's default for max_connections.
CONNECTIONS = 40


def receiver_settings(url: str, port: int) -> dict[str, str]:
    return {
        "BOT_TOKEN": simulator.TOKEN,
        "REDIS_URL": url,
        "WEBHOOK_URL": f"http://{HOST}:{port}{PATH}",
        "WEBHOOK_PORT": str(port),
        "MAX_PENDING": "1000000",
    }


def answers_at(place: str) -> bool:
    try:
        requests.get(place, timeout=10)
    except requests.ConnectionError:
        return False
    return True
