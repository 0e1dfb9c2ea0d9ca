"""celery_lanes.django in a real project, with a real worker: the page of the admin, `manage.py lanes`, `on_commit`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests
from playwright.sync_api import Page, expect

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import connect
from tests.lanes.web.shop import Shop, shop
from tests.support.browser import browser
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SETTINGS = """
INSTALLED_APPS += ["celery_lanes.django"]
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"  # requests changes cookies with quotes
"""
#: Each with the password `secret`: ann may change, ben may see, eve may enter the admin, tom is not staff.
USERS = """
from django.contrib.auth.models import Permission, User

staff = [("ann", ["view_lane", "change_lane"]), ("ben", ["view_lane"]), ("eve", []), ("tom", ["change_lane"])]
for name, codes in staff:
    user = User.objects.create_user(name, password="secret", is_staff=name != "tom")
    user.user_permissions.set(Permission.objects.filter(codename__in=codes))
"""
LOG = """
from django.contrib.admin.models import LogEntry
for entry in LogEntry.objects.order_by("pk"):
    print(entry.user.username, entry.object_repr, entry.get_change_message(), sep="; ")
"""
ON_COMMIT = """
from django.db import transaction
import celery_lanes as lanes
from shop.tasks import charge

def orders(*numbers):
    with transaction.atomic():
        for number in numbers:
            order, headers = {"customer": 9, "number": number}, lanes.headers(["customer:9"])
            charge.apply_async_on_commit((order,), queue="orders", headers=headers)
            assert charge.app.lanes.store.pending("orders") == 0
        if 3 in numbers:
            raise ValueError("rolled back")
"""


@pytest.fixture(scope="module")
def project(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("project")
    with shop(folder, server.url, SETTINGS) as made:
        in_shell(made, USERS)
        made.start("web", "manage", "runserver", f"{made.port}", "--noreload", until="Quit the server with")
        made.worker()
        yield made


@pytest.fixture
def web(project: Shop, server: Server) -> Shop:
    with connect(server.url) as client:
        client.flushall()
    for name in ("charged", "fixed"):
        (project.folder / name).unlink(missing_ok=True)
    return project


def in_shell(web: Shop, code: str) -> str:
    return web.run("manage", "shell", "--no-imports", "-c", code)


class Staff(requests.Session):
    """A user who has logged in."""

    def __init__(self, web: Shop, name: str) -> None:
        super().__init__()
        self.page = f"{web.url}/admin/celery_lanes/lane/"
        login = f"{web.url}/admin/login/"
        self.get(login, timeout=60)
        self.post(login, data={"username": name, "password": "secret", "next": "/admin/", **self._token}, timeout=60)

    @property
    def _token(self) -> dict[str, str]:
        return {"csrfmiddlewaretoken": str(self.cookies.get("csrftoken"))}

    def see(self, query: str = "", code: int = 200) -> str:
        answer = self.get(f"{self.page}{query}", timeout=60)
        assert answer.status_code == code, answer.text
        return answer.text

    def act(self, action: str, *targets: str, code: int = 200, query: str = "", **more: str) -> str:
        data = {"action": action, "target": targets, **self._token, **more}
        answer = self.post(f"{self.page}{query}", data=data, timeout=60)
        assert answer.status_code == code, answer.text
        return answer.text


@pytest.mark.exhaustive
def test_a_person_repairs_lanes_in_a_browser(web: Shop) -> None:
    complaints: list[str] = []
    # Given a paused lane, two dead letters, and a timer
    ids = [web.order(666, number) for number in (1, 2)]
    until(lambda: len(web.run("celery", "-A", "shop", "lanes", "dead", "list", "--json").splitlines()) == 2)
    timer = web.order(9, 3, countdown=3600)
    web.app.lanes.store.pause("lane", "customer:9")
    waiting = [web.order(9, number) for number in (1, 2)]
    with browser(viewport={"width": 1440, "height": 900}) as window:
        page = window.new_page()
        page.on("console", lambda message: complaints.append(f"{message.text} {message.location['url']}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.route("**/favicon.ico", lambda route: route.fulfill(body=""))
        page.goto(f"{web.url}/admin/")
        page.get_by_label("Username").fill("ann")
        page.get_by_label("Password").fill("secret")
        page.get_by_role("button", name="Log in").click()
        # When Ann opens a lane from the list of the busiest
        page.get_by_role("link", name="Lanes", exact=True).click()
        page.get_by_role("link", name="customer:9").click()
        # Then she sees its head, and the messages that wait
        for each in waiting:
            expect(page.get_by_role("cell", name=each)).to_be_visible()
        expect(page.get_by_role("cell", name=re.compile("paused; waiting"))).to_be_visible()
        # When she resumes it, it runs
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_text("Resumed customer:9")).to_be_visible()
        until(lambda: web.charged == ["9 1", "9 2"])
        page.get_by_role("row", name=timer).get_by_role("button", name="Cancel").click()
        expect(page.get_by_text("No timer is set.")).to_be_visible()
        handles_dead_letters(web, page, ids)
        assert complaints == []


def handles_dead_letters(web: Shop, page: Page, ids: list[str]) -> None:
    page.locator(".breadcrumbs").get_by_role("link", name="Lanes").click()
    # A text is a text
    expect(page.get_by_text("ValueError: <b>no</b> stock").first).to_be_visible()
    # She looks at one, drops it, and is asked
    page.get_by_role("link", name=ids[0]).click()
    expect(page.get_by_text("in charge", exact=True)).to_be_visible()
    page.get_by_role("button", name="Drop").click()
    expect(page.get_by_text("Delete these dead letters permanently?")).to_be_visible()
    page.get_by_role("button", name="Yes, delete them").click()
    expect(page.get_by_text("Dropped 1 message")).to_be_visible()
    # She replays the others
    web.fix()
    page.get_by_label("All of these").check()
    page.get_by_role("button", name="Replay selected").click()
    expect(page.get_by_text("Replayed 1 message")).to_be_visible()
    expect(page.get_by_text("Nothing is buried.")).to_be_visible()
    until(lambda: web.charged == ["9 1", "9 2", "666 2"])


def test_each_action_is_in_the_log_of_the_admin(web: Shop) -> None:
    before = len(in_shell(web, LOG).splitlines())
    ann = Staff(web, "ann")
    for verb in ("pause", "resume"):
        for kind, name in (("group", "orders"), ("queue", "orders"), ("lane", "customer:9")):
            assert f"{verb}d {name}".capitalize() in ann.act(f"{verb} {kind}", name)
    # What fails is shown, and not in the log
    assert "Not done: there is no lane queue mail" in ann.act("pause queue", "mail")
    assert "Not done: --all is not buried" in ann.act("drop", "--all", is_sure="yes")
    assert "Not done: give either IDs" in ann.act("replay")
    assert in_shell(web, LOG).splitlines()[before:] == [
        f"ann; {name}; {verb}d {name}" for verb in ("pause", "resume") for name in ("orders", "orders", "customer:9")
    ]


def test_only_staff_with_the_permission_may_see_and_act(web: Shop) -> None:
    # Ben may look, and has no buttons
    ben = Staff(web, "ben")
    web.app.lanes.store.pause("lane", "customer:9")
    assert "lane customer:9" in ben.see()
    assert "Resume" not in ben.see()
    ben.act("resume lane", "customer:9", code=403)
    # Eve may enter the admin only, and Tom not even that
    eve = Staff(web, "eve")
    eve.see(code=403)
    eve.act("resume lane", "customer:9", code=403)
    assert "celery_lanes" not in eve.get(f"{web.url}/admin/", timeout=60).text
    tom = Staff(web, "tom")
    assert "Log in" in tom.see()
    tom.act("resume lane", "customer:9")
    # A page of another site does not know Ann's token, and there are no other actions
    ann = Staff(web, "ann")
    refused = ann.post(ann.page, data={"action": "resume lane", "target": "customer:9"}, timeout=60)
    assert refused.status_code == 403
    ann.act("check", "", code=403)
    assert web.app.lanes.store.client.hlen("lanes:paused") == 1


AWAY = """
from django.contrib.auth.models import User
from django.test import Client
from shop.celery import app

app.conf.broker_url, app.conf.broker_transport_options = "redis://127.0.0.1:1", {"lease_seconds": 1}
client = Client(SERVER_NAME="localhost")
client.force_login(User.objects.get(username="ann"))
page = client.get("/admin/celery_lanes/lane/")
assert page.status_code == 503 and b"Redis at 127.0.0.1:1 does not answer: " in page.content
print(client.post("/admin/celery_lanes/lane/", {"action": "resume lane", "target": "a"}, follow=True).status_code)
"""


def test_a_redis_that_does_not_answer_is_a_sentence(web: Shop) -> None:
    assert in_shell(web, AWAY).splitlines()[0] == "503"


def test_what_is_not_there_is_a_sentence(web: Shop) -> None:
    ann = Staff(web, "ann")
    assert "nothing is not buried: there is no such message" in ann.see("?letter=nothing", code=404)
    assert "0 in the lane." in ann.see("?lane=customer:1")


def test_manage_py_lanes_is_the_celery_command(web: Shop) -> None:
    web.order(666, 1)
    shown = until(lambda: web.run("manage", "lanes", "dead", "list"))
    assert shown == web.run("celery", "-A", "shop", "lanes", "dead", "list")
    assert "paused customer:9" in web.run("manage", "lanes", "pause", "lane", "customer:9", "--settings=shop.settings")
    assert "Usage: manage.py lanes pause" in web.run("manage", "lanes", "pause", "--help")
    assert "Usage: manage.py lanes [OPTIONS]" in web.run("manage", "help", "lanes")
    assert "there is no group mail" in web.run("manage", "lanes", "pause", "group", "mail", code=1)
    assert "No such command 'nothing'" in web.run("manage", "lanes", "nothing", code=2)


CALLED = """
from io import StringIO
from django.core.management import CommandError, call_command

call_command("lanes", "status", "--now", "--json", stdout=(said := StringIO()))
assert '"paused_since_ms"' in said.getvalue()
for words in (["pause", "group", "mail"], ["nothing"], ["check"]):
    try:
        call_command("lanes", *words, stdout=StringIO())
    except CommandError as error:
        print(error)
"""


def test_lanes_is_a_command_for_call_command(web: Shop) -> None:
    with connect(web.app.conf.broker_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")  # of which `lanes check` complains
        [of_pause, of_nothing, of_check] = in_shell(web, CALLED).splitlines()
        client.config_set("maxmemory-policy", "noeviction")
    assert "there is no group mail" in of_pause
    assert "No such command 'nothing'" in of_nothing
    assert of_check == "lanes check ended with code 1"


def test_the_database_has_no_table_of_it(web: Shop) -> None:
    assert "No changes detected" in web.run("manage", "makemigrations", "--check", "--dry-run")
    assert "celery_lanes_lane" not in in_shell(
        web, "from django.db import connection as c; print(c.introspection.table_names())"
    )
    web.run("manage", "dumpdata", "--all")
    assert "no issues" in web.run("manage", "check")


def test_tasks_are_published_on_commit_only_and_in_order(web: Shop) -> None:
    in_shell(web, f"{ON_COMMIT}\norders(1, 2)")
    until(lambda: web.charged == ["9 1", "9 2"] and web.app.lanes.store.pending("orders") == 0)
    code = f"{ON_COMMIT}\ntry:\n    orders(3)\nexcept ValueError:\n    orders(4)"
    in_shell(web, code)
    until(lambda: web.charged == ["9 1", "9 2", "9 4"])


DELAY = """
from django.db import transaction
import celery_lanes as lanes
from shop.tasks import charge

charge.app.conf.task_routes = {charge.name: {"queue": "orders", "headers": lanes.headers(["customer:9"])}}
with transaction.atomic():
    charge.delay_on_commit({"customer": 9, "number": 1})
    assert charge.app.lanes.store.pending("orders") == 0
"""


def test_delay_on_commit_takes_the_lane_from_the_route(web: Shop) -> None:
    in_shell(web, DELAY)
    until(lambda: web.charged == ["9 1"])
