"""celery-lanes without the two other distributions: its README, followed in an environment with only what it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent

import pytest

from tests.packaging.wheel import Installed, requirements
from tests.support import ROOT
from tests.support.process import Process
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

README = (ROOT / "packages/celery-lanes/README.md").read_text()
BLOCKS = re.findall(r"^```python\n# (?:at the end of )?(\S+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

#: Added to the task of the README: it notes its start and its end.
CHARGE = """
    with open("charged", "a") as file:
        for what in ("start", "end"):
            print(what, customer, total, file=file, flush=True)
"""
CUSTOMERS, ORDERS = 3, 10
EXPECTED = {
    str(customer): [(what, str(number)) for number in range(ORDERS) for what in ("start", "end")]
    for customer in range(CUSTOMERS)
}

Start = Callable[..., Process]


@pytest.fixture(scope="module")
def alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """celery-lanes, and Django for the section about it."""
    wheel = wheels["celery_lanes"]
    return Installed([wheel], tmp_path_factory.mktemp("alone"), only=[*requirements(wheel), "django"])


@pytest.fixture
def start(alone: Installed) -> Iterator[Start]:
    running: list[Process] = []

    def begin(*words: str, at: Path) -> Process:
        running.append(alone.start(*words, at=at))
        return running[-1]

    yield begin
    for process in running:
        process.end()


def blocks(redis_url: str) -> list[tuple[str, str]]:
    """(file, text) of the README's Python, with the server of the test."""
    assert README.count("redis://localhost/0") == 2
    fits = ((file, text.replace("redis://localhost/0", redis_url)) for file, text in BLOCKS)
    return [(file, re.sub(r"(?<=pays \{total\}\"\))\n", lambda _: CHARGE, text)) for file, text in fits]


def succeeds(installed: Installed, *words: str, at: Path) -> str:
    ended = installed.run(*words, at=at)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout


def check_worker_runs_in_order(alone: Installed, start: Start, folder: Path, pool: str) -> None:
    """Given published orders: a worker charges them, each customer's one after the other."""
    status = succeeds(alone, "celery", "-A", "shop", "lanes", "status", at=folder)
    assert re.search(rf"^celery +{CUSTOMERS * ORDERS} ", status, re.MULTILINE)
    worker = start("celery", "-A", "shop", "worker", "-P", pool, "-c", "4", "-l", "INFO", at=folder)
    charged = folder / "charged"
    most = 2 * CUSTOMERS * ORDERS
    until(lambda: (charged.exists() and len(charged.read_text().splitlines()) >= most) or not worker.is_running())
    lines = [line.split() for line in charged.read_text().splitlines()]
    seen = {each: [(what, number) for what, customer, number in lines if customer == each] for each in EXPECTED}
    assert seen == EXPECTED
    worker.stop()
    assert "not applied" not in worker.log  # each piece of fast/ fits without the extra too
    status = succeeds(alone, "celery", "-A", "shop", "lanes", "status", at=folder)
    assert not re.search(r"^celery +[1-9]", status, re.MULTILINE)


def test_only_what_it_needs_is_installed(alone: Installed, tmp_path: Path) -> None:
    code = "from importlib.metadata import distributions; print(*sorted(each.name.lower() for each in distributions()))"
    listed = succeeds(alone, "python", "-c", code, at=tmp_path).split()
    django = ["asgiref", "django", "sqlparse"]
    celery = ["amqp", "billiard", "celery", "click", "click-didyoumean", "click-plugins", "click-repl", "kombu", "vine"]
    celery += ["packaging", "prompt-toolkit", "python-dateutil", "six", "typing-extensions", "tzlocal", "wcwidth"]
    allowed = {"celery-lanes", "redis", "async-timeout", "tzdata", *celery, *django}
    assert {name.replace("_", "-") for name in listed} <= allowed
    loaded = "import sys, celery_lanes, celery_lanes.cli; print(*sys.modules)"
    modules = set(succeeds(alone, "python", "-c", loaded, at=tmp_path).split())
    assert modules.isdisjoint({"chatlanes", "flower", "gevent", "greenlet", "hiredis", "orjson", "requests"})


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_the_example_of_the_readme(alone: Installed, start: Start, redis_url: str, tmp_path: Path, pool: str) -> None:
    (file, shop), (_, publish), *_ = blocks(redis_url)
    (tmp_path / file).write_text(shop)
    # When each customer orders, in turn
    imports, _, call = publish.partition("\n\n")
    call = call.replace("9, total=20", "customer, total=total")
    assert "total=total" in call
    orders = [(customer, total) for total in range(ORDERS) for customer in range(CUSTOMERS)]
    code = f"{imports}\nfor customer, total in {orders}:\n{indent(call, '    ')}"
    succeeds(alone, "python", "-c", code, at=tmp_path)
    # Then
    check_worker_runs_in_order(alone, start, tmp_path, pool)


def test_the_page_about_lanes_has_the_same_example() -> None:
    example = README.partition("```python\n")[2].partition("`install` and")[0]
    assert example in (ROOT / "docs/lanes.md").read_text()


def test_metrics_name_their_extra(alone: Installed, redis_url: str, tmp_path: Path) -> None:
    file, shop = blocks(redis_url)[0]
    (tmp_path / file).write_text(shop)
    refused = alone.run("celery", "-A", "shop", "lanes", "metrics", at=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == "prometheus_client is not installed: pip install celery-lanes[metrics]\n"


def test_a_django_project(alone: Installed, start: Start, redis_url: str, tmp_path: Path) -> None:
    # Given a new project with the files of the README
    succeeds(alone, "python", "-m", "django", "startproject", "shop", ".", at=tmp_path)
    succeeds(alone, "python", "manage.py", "startapp", "orders", at=tmp_path)
    for file, text in blocks(redis_url):
        if "/" in file:
            with (tmp_path / file).open("a") as module:
                module.write(text)
    # When a view publishes, in a transaction
    code = f"""
from django.db import transaction
from django.test import RequestFactory
from orders.views import buy

with transaction.atomic():
    for number in range({ORDERS}):
        for customer in range({CUSTOMERS}):
            assert buy(RequestFactory().post("/", dict(customer=customer, total=number))).status_code == 202
"""
    succeeds(alone, "python", "manage.py", "shell", "--no-imports", "-c", code, at=tmp_path)
    # Then
    check_worker_runs_in_order(alone, start, tmp_path, "prefork")
    # And the admin has the page
    succeeds(alone, "python", "manage.py", "migrate", at=tmp_path)
    code = """
from django.contrib.auth.models import User
from django.test import Client

client = Client(SERVER_NAME="localhost")
client.force_login(User.objects.create_superuser("ann"))
assert b"queue celery.lanes" in client.get("/admin/celery_lanes/lane/").content
"""
    succeeds(alone, "python", "manage.py", "shell", "--no-imports", "-c", code, at=tmp_path)
