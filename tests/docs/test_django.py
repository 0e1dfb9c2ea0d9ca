"""docs/django.md: a project with the files of the page, its web server, its worker, and workers of the bot."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

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

#: The files that the page takes for granted.
SETTINGS = """
INSTALLED_APPS += ["orders"]
CELERY_BROKER_URL = "{broker}"
CELERY_TASK_DEFAULT_QUEUE = "shop"
"""
#: Bots that the page has in words only.
BOTS = """
import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from django.db import connection
from asgiref.sync import sync_to_async

from orders import bot
from orders.models import Order
from orders.tasks import pack


def handle(ctx):
    if ctx.text == "break":
        cut()
        ctx.reply("broken")
    else:
        bot.handle(ctx)


async def handle_async(ctx):
    if ctx.text == "break":
        await sync_to_async(cut)()
        await ctx.reply("broken")
        return
    order = await Order.objects.acreate(update_id=ctx.update_id, chat_id=ctx.chat_id, text=ctx.text)
    await sync_to_async(pack.delay)(order.pk)
    await ctx.reply(f"Order {order.pk} is accepted.")


def cut():
    Order.objects.exists()
    connection.connection.close()      # as when the database restarts: Django does not know
"""
BY_ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "shop.settings"}
#: pool, slots, bot, further environment: each with a queue of its own
WORKERS = (
    ("prefork", 2, "orders.bot:handle", BY_ENVIRONMENT),
    ("gevent", 20, "orders.bot:handle", BY_ENVIRONMENT),
    ("solo", 1, "orders.bots:handle", {}),
    ("threads", 4, "orders.bots:handle_async", {}),
    ("threads", 4, "orders.bots:handle_async", BY_ENVIRONMENT),
)
BREAKABLE = [place for place, (_, _, bot, _) in enumerate(WORKERS) if bot.startswith("orders.bots")]


class Shop(Project):
    """`bots` are the workers of WORKERS, `celery` is the worker of the project."""

    bots: list[Process]
    celery: Process

    def make(self) -> None:
        self.run("django", "startproject", "shop", ".")
        self.run("manage", "startapp", "orders")
        self.write_files_of_page()
        self.write("orders/bots.py", BOTS)
        with (self.folder / "shop/settings.py").open("a") as settings:
            settings.write(SETTINGS.format(broker=self.pipeline.settings["REDIS_URL"]))
        self.run("manage", "makemigrations", "orders")
        self.run("manage", "migrate")

    def begin(self) -> None:
        self.celery = self.start("celery", "celery", "-A", "shop", "worker", "-P", "threads", "-l", "INFO")
        self.bots = [
            self.pipeline.worker(pool, slots, "-Q", f"updates.{place}", is_awaited=False, BOT=bot, **more)
            for place, (pool, slots, bot, more) in enumerate(WORKERS)
        ]
        self.start_web_server("shop.asgi:application")
        for process in (self.celery, *self.bots):
            process.tells(" ready.")

    def chat(self, place: int) -> int:
        """A chat of this worker."""
        return next(chats_of(place, len(WORKERS)))

    def order(self, text: str, chat: int) -> str:
        """Order something, and wait until the bot has accepted it; the number of the order."""
        [number] = re.findall(r"Order (\d+) is accepted\.", self.ask(text, chat))
        return number

    def packed(self) -> set[str]:
        """The numbers of the packed orders."""
        with closing(sqlite3.connect(self.folder / "db.sqlite3")) as database:
            return {str(number) for [number] in database.execute("SELECT id FROM orders_order WHERE is_packed")}


@pytest.fixture(scope="module")
def shop(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with connect(server.url) as client, start(TOKEN) as simulator:
        client.flushall()
        directory = tmp_path_factory.mktemp("shop")
        pipeline = Pipeline(directory, simulator, server.url, QUEUES=len(WORKERS))
        shop = Shop(pipeline, "django.md")
        try:
            shop.make()
            shop.begin()
            yield shop
        finally:
            pipeline.close()


@pytest.mark.parametrize("place", range(len(WORKERS)), ids=lambda place: "-".join(map(str, WORKERS[place][:3])))
def test_handler_uses_the_models_and_the_tasks_of_the_project(shop: Shop, place: int) -> None:
    order = shop.order("tea", shop.chat(place))
    # The task runs in the worker of the project, on the queue of its settings
    until(lambda: order in shop.packed())
    assert "orders.tasks.pack" not in shop.bots[place].log.partition(" ready.")[2]


@pytest.mark.parametrize("place", BREAKABLE)
def test_lost_connection_to_the_database_is_replaced_after_the_update(shop: Shop, place: int) -> None:
    chat = shop.chat(place)
    assert shop.ask("break", chat) == "broken"
    shop.order("coffee", chat)
    assert "retry" not in shop.bots[place].log


def test_other_requests_reach_django(shop: Shop) -> None:
    assert "Django administration" in shop.get("/admin/").text
    assert shop.get("/telegram").status_code == 404  # only a POST is an update
    assert requests.post(f"{shop.url}/telegram", json={"update_id": 1}, timeout=30).status_code == 401


def test_action_of_the_admin_tells_the_customer(shop: Shop) -> None:
    # Given an order and a user of the admin
    chat = shop.chat(0)
    order = shop.order("cake", chat)
    shop.pipeline.settings["DJANGO_SUPERUSER_PASSWORD"] = "secret"
    shop.run("manage", "createsuperuser", "--no-input", "--username=ann", "--email=ann@example.org")
    # When the user runs the action of the page
    browser = requests.Session()
    login, orders = f"{shop.url}/admin/login/", f"{shop.url}/admin/orders/order/"
    _submit(browser, login, username="ann", password="secret", next="/admin/")
    _submit(browser, orders, action="tell_shipped", _selected_action=order)
    # Then the bot's worker sends the message, after the transaction
    until(lambda: f"Order {order} is shipped." in shop.answers(chat))


def _submit(browser: requests.Session, url: str, **fields: object) -> None:
    page = browser.get(url, timeout=30)
    page.raise_for_status()
    fields["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
    browser.post(url, data=fields, timeout=30).raise_for_status()


def test_tests_of_the_page_pass(shop: Shop) -> None:
    shop.run("manage", "test")


def test_sandbox_can_import_the_bot(shop: Shop) -> None:
    shop.pipeline.settings.update(BY_ENVIRONMENT)
    shop.run("chatlanes_sandbox.check_bot", "orders.bot:handle")
