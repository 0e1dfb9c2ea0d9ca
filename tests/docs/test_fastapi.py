"""docs/fastapi.md: the files of the page, their web server, their worker, and workers of the bot."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import connect
from chatlanes_sandbox.simulator import start
from tests.docs.project import Project
from tests.support.pipeline import TOKEN, Pipeline, chats_of
from tests.support.process import Process
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

BROKER = "redis://127.0.0.1:6379/0"
#: -P prefork, with the task of the page, and -P threads, with the same as a shared task. Both read all but the queue of
#: the other.
BOTS = {"prefork": "shop.bot:handle", "threads": "shop.shared:handle"}
SHARED = """
from celery import shared_task

from shop import bot, tasks

@shared_task
def pack(number):
    tasks.pack(number)

bot.pack = pack
handle = bot.handle
"""


class Shop(Project):
    """`bots` are the workers of BOTS."""

    bots: list[Process]
    web: Process


@pytest.fixture(scope="module")
def shop(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with connect(server.url) as client, start(TOKEN) as simulator:
        client.flushall()
        pipeline = Pipeline(tmp_path_factory.mktemp("shop"), simulator, server.url, QUEUES=len(BOTS))
        try:
            shop = Shop(pipeline, "fastapi.md")
            shop.write_files_of_page()
            # With the broker in the database of the bot, which the page advises against
            tasks = shop.folder / "shop/tasks.py"
            assert BROKER in tasks.read_text()
            shop.write("shop/tasks.py", tasks.read_text().replace(BROKER, server.url))
            shop.write("shop/shared.py", SHARED)
            celery = shop.start("celery", "celery", "-A", "shop.tasks", "worker", "--include=shop.shared", "-l", "INFO")
            shop.bots = [
                pipeline.worker(pool, 4, "-X", f"updates.{1 - place}", is_awaited=False, BOT=bot)
                for place, (pool, bot) in enumerate(BOTS.items())
            ]
            shop.web = shop.start_web_server("shop.main:app")
            for process in (celery, *shop.bots):
                process.tells(" ready.")
            yield shop
        finally:
            pipeline.close()


@pytest.mark.parametrize("place", range(len(BOTS)), ids=BOTS)
def test_handler_uses_the_database_and_the_tasks_of_the_project(shop: Shop, place: int) -> None:
    # When Telegram sends an order to the web server
    answer = shop.ask("tea", next(chats_of(place, len(BOTS))))
    number = int(re.findall(r"Order (\d+) is accepted\.", answer)[0])
    # Then the project's worker packs it, and the web server shows it
    until(lambda: [number, "tea", 1] in shop.get("/orders").json())
    assert "pack[" not in shop.bots[place].log


def test_an_endpoint_sends_once_and_shows_the_result(shop: Shop) -> None:
    # When the endpoint is called twice
    chat = next(chats_of(0, len(BOTS)))
    ids = [
        requests.post(f"{shop.url}/orders/17/shipped", params={"chat_id": chat}, timeout=30).json() for _ in range(2)
    ]
    # Then the customer gets one message
    assert ids[0] == ids[1]
    until(lambda: shop.get(f"/calls/{ids[0]}").json() == {"state": "sent", "why": ""})
    assert shop.get("/calls/x").status_code == 404
    assert shop.answers(chat).count("Order 17 is shipped.") == 1


def test_other_requests_reach_the_app(shop: Shop) -> None:
    assert shop.get("/openapi.json").json()["paths"].keys() == {"/orders", "/orders/{number}/shipped", "/calls/{id}"}
    assert shop.get("/telegram").status_code == 404  # only a POST is an update
    assert requests.post(f"{shop.url}/telegram", json={"update_id": 1}, timeout=30).status_code == 401


def test_lifespan_reaches_the_app(shop: Shop) -> None:
    assert "Application startup complete" in shop.web.log
    assert "'lifespan' protocol appears unsupported" not in shop.web.log
