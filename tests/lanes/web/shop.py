"""A project with a task in lanes, for Django and FastAPI: its files, its worker, its web server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celery import Celery
from kombu import Queue

import celery_lanes
from celery_lanes.embedded_server import free_port
from tests.support import forks
from tests.support.process import Process

#: What their processes have imported if they are forked.
IMPORTED = (
    *(*forks.CELERY, "django.__main__", "django.core.servers.basehttp", "django.db.backends.sqlite3.base"),
    *("django.db.models", "django.forms", "django.template.backends.django", "django.views.generic"),
)

CELERY_APP = """
import os

from celery import Celery
from kombu import Queue
import celery_lanes as lanes

if os.path.exists("manage.py"):
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
app = Celery("shop", broker="{url}")
lanes.install(app)
app.conf.task_queues = [Queue("orders", queue_arguments=lanes.QUEUE_ARGUMENTS)]
app.conf.imports = ["shop.tasks"]
"""
TASKS = """
import os

from celery import shared_task

@shared_task(bind=True)
def charge(self, order):
    '''An order of the customer 666 is buried until the file `fixed` is there.'''
    if order["customer"] == 666 and not os.path.exists("fixed"):
        self.delivery.bury({"type": "ValueError", "message": "<b>no</b> stock", "traceback": "in charge"})
        return
    with open("charged", "a") as file:
        print(order["customer"], order["number"], file=file, flush=True)
"""


class Shop:
    """`folder` is that of the project; `app` is its Celery app, in the process of the test."""

    def __init__(self, folder: Path, url: str, django: str = "") -> None:
        """`django`: more lines for the settings of a Django project."""
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.app = Celery("shop", broker=url, set_as_current=False)
        celery_lanes.install(self.app)
        self.app.conf.task_queues = [Queue("orders", queue_arguments=celery_lanes.QUEUE_ARGUMENTS)]
        self._running: list[Process] = []
        if django:
            self.run("django", "startproject", "shop", ".")
            self.write("shop/settings.py", (folder / "shop/settings.py").read_text() + django)
        self.write("shop/__init__.py", "from shop.celery import app as celery_app\n")
        self.write("shop/celery.py", CELERY_APP.format(url=url))
        self.write("shop/tasks.py", TASKS)
        if django:
            self.run("manage", "migrate")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def start(self, name: str, *words: str, until: str, **settings: str) -> Process:
        """Start `python -m …`, and wait for a text of its log."""
        command = [sys.executable, "-m", *words]
        process = Process(name, command, self.folder, settings, imported=IMPORTED)
        self._running.append(process)
        process.tells(until)
        return process

    def worker(self) -> Process:
        words = ("celery", "-A", "shop", "worker", "-P", "solo", "-l", "INFO", "--without-mingle")
        return self.start("worker", *words, until=" ready.")

    def run(self, *words: str, code: int = 0) -> str:
        """The output of a command `python -m …`."""
        ended = forks.run([sys.executable, "-m", *words], self.folder, os.environ, IMPORTED)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def order(self, customer: int, number: int, **options: object) -> str:
        """Publish one; its id."""
        order = {"customer": customer, "number": number}
        headers = celery_lanes.headers([f"customer:{customer}"])
        return str(self.app.send_task("shop.tasks.charge", (order,), queue="orders", headers=headers, **options).id)

    @property
    def charged(self) -> list[str]:
        file = self.folder / "charged"
        return file.read_text().splitlines() if file.exists() else []

    def fix(self) -> None:
        self.write("fixed", "")


@contextmanager
def shop(folder: Path, url: str, django: str = "") -> Iterator[Shop]:
    made = Shop(folder, url, django)
    try:
        yield made
    finally:
        for process in made._running:
            process.end()
        made.app.lanes.store.client.close()
        made.app.close()
