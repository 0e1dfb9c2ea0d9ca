"""`webhook(app, settings)`: the receiver inside the web server of a project."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from celery_lanes.embedded_server import free_port
from chatlanes import webhook
from chatlanes.settings import Settings, SettingsError
from tests.poller.lanes import lane
from tests.poller.webhook.process import HEADER, SECRET, update
from tests.support.bot_api import TOKEN
from tests.support.outside import outside
from tests.support.process import Process
from tests.support.waiting import WITHIN_S

#: As servers do that load the app before they fork (gunicorn --preload), with an app behind the webhook.
PROGRAM = """
import os, sys, uvicorn
from starlette.responses import PlainTextResponse
from chatlanes import load, webhook

app = webhook(PlainTextResponse("of the project"), load())
if os.fork() == 0:
    uvicorn.run(app, port=int(sys.argv[1]))
else:
    os.wait()
"""


@pytest.fixture
def url(redis_url: str, tmp_path: Path) -> Iterator[str]:
    """The address of a running server whose webhook is at /telegram."""
    port = free_port()
    settings = {"BOT_TOKEN": TOKEN, "REDIS_URL": redis_url, "WEBHOOK_REORDER": 0}
    settings["WEBHOOK_URL"] = "https://example.org/telegram"
    command = [sys.executable, "-c", PROGRAM, str(port)]
    server = Process("web", command, tmp_path, settings, [TOKEN, SECRET], inherited=outside())
    try:
        server.tells("Uvicorn running")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.end()


@pytest.mark.slow
def test_server_that_forks_after_it_loads_the_app_stores_updates(url: str, redis_url: str) -> None:
    for number in (1, 2, 2):
        answer = requests.post(f"{url}/telegram", json=update(number), headers={HEADER: SECRET}, timeout=WITHIN_S)
        assert answer.status_code == 200
    assert lane(redis_url) == [1, 2]


def test_only_posts_to_the_path_of_the_webhook_are_updates(url: str, redis_url: str) -> None:
    for method, path in (("GET", "/telegram"), ("POST", "/telegram/"), ("POST", "/"), ("GET", "/readyz")):
        answer = requests.request(method, url + path, json=update(1), headers={HEADER: SECRET}, timeout=WITHIN_S)
        assert answer.text == "of the project"
    for headers, status in (({}, 401), ({HEADER: "wrong"}, 403)):
        answer = requests.post(f"{url}/telegram", json=update(1), headers=headers, timeout=WITHIN_S)
        assert answer.status_code == status
    assert lane(redis_url) == []


async def nothing(*_: object) -> None: ...


def test_missing_webhook_url_is_named_when_the_app_is_made() -> None:
    with pytest.raises(SettingsError, match="WEBHOOK_URL is not set"):
        webhook(nothing, Settings(bot_token=TOKEN))
