"""Flower's pages in a real browser, protected by a password."""

from __future__ import annotations

import re

import requests
from playwright.sync_api import Page, expect

from celery_lanes.embedded_server import free_port
from tests.pipeline.conftest import MakePipeline
from tests.sandbox.page.test_foreign_pages import fetches, foreign_site, forged, posts_a_form
from tests.support.browser import browser
from tests.support.pipeline import BOT_ID, message
from tests.support.waiting import until

PATHS = ("/", "/tasks", "/broker", "/api/tasks", "/metrics", "/healthcheck")


def test_flower_requires_its_generated_password(make_pipeline: MakePipeline) -> None:
    # Given Flower without a password setting, a worker, an update that succeeded and one that failed
    pipeline = make_pipeline(MAX_ATTEMPTS=1, QUEUES=2)
    port = free_port()
    flower = pipeline.flower(port, FLOWER_UNAUTHENTICATED_API="false")
    flower.tells("login is user admin, password ")
    url, password = f"http://127.0.0.1:{port}", re.findall("password (\\S+), until", flower.log)[0]
    until(lambda: status_of(f"{url}/healthcheck"))
    pipeline.worker("prefork", 1)
    until(
        lambda: "w1@test" in requests.get(f"{url}/api/workers?status=true", auth=("admin", password), timeout=30).text
    )
    good, failing = pipeline.push(message(1, 5), message(2, 7, do="fails:9"))
    pipeline.poller()
    pipeline.drained()
    # Then every page requires the password
    assert {status_of(f"{url}{path}") for path in PATHS} == {401}
    # And with the password, the pages show the worker, the updates, the failure with its traceback, and the queues
    with browser(http_credentials={"username": "admin", "password": password}) as window:
        page = window.new_page()
        page.goto(url)
        expect(page.locator("#workers-table")).to_contain_text("w1@test")
        page.goto(f"{url}/tasks")
        for update, chat, state in [(good, 5, "SUCCESS"), (failing, 7, "FAILURE")]:
            row = page.locator("#tasks-table tr", has_text=f"{BOT_ID}:{update}")
            expect(row.locator("td").nth(1)).to_have_text("message")
            expect(row.locator("td").nth(2)).to_have_text(str(chat))
            expect(row).to_contain_text(state)
        page.goto(f"{url}/task/{BOT_ID}:{failing}")
        expect(page.locator("body")).to_contain_text("RuntimeError: attempt 1 of")
        expect_queues(page, url)


def test_no_foreign_page_can_use_a_flower_with_a_password(make_pipeline: MakePipeline) -> None:
    # Given Flower as in production, and a browser that is logged in to it
    pipeline = make_pipeline()
    port = free_port()
    flower = pipeline.flower(port, FLOWER_BASIC_AUTH="admin:letters8", FLOWER_UNAUTHENTICATED_API="false")
    url, login = f"http://127.0.0.1:{port}", ("admin", "letters8")
    until(lambda: status_of(f"{url}/healthcheck"))
    worker = pipeline.worker("solo", 1)
    until(lambda: "w1@test" in requests.get(f"{url}/api/workers?status=true", auth=login, timeout=30).text)
    apply, shutdown = f"{url}/api/task/async-apply/tasks.update", f"{url}/api/worker/shutdown/w1@test"
    with browser() as window, foreign_site() as site:
        link = f"http://admin:letters8@127.0.0.1:{port}"
        own = window.new_page()
        own.goto(link)
        expect(own.locator("#workers-table")).to_contain_text("w1@test")
        # When a page of another site sends requests with the browser's login
        page = window.new_page()
        page.goto(site)
        fetches(page, apply, forged("a forged update"))
        fetches(page, shutdown, "")
        # And reads a page
        read = "url => fetch(url, {credentials: 'include'}).then(answer => answer.text(), () => '')"
        assert page.evaluate(read, f"{url}/api/tasks") == ""
        # And posts forms
        for action in (apply, shutdown):
            page = window.new_page()
            page.goto(site)
            assert posts_a_form(page, action, forged("a forged update")) in (401, 403)
        # And the same from outside of a browser, with a browser's headers of another site
        for header in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": site.rstrip("/")},
            {"Origin": "null"},
        ):
            assert requests.post(shutdown, headers=header, auth=login, timeout=30).status_code == 403
    # Then nothing has happened
    assert worker.is_running()
    assert pipeline.history == []
    assert "tasks.update" not in requests.get(f"{url}/api/tasks", auth=login, timeout=30).text
    flower.stop()


def expect_queues(page: Page, url: str) -> None:
    page.goto(f"{url}/broker")
    for queue in ("updates.0", "updates.1"):
        expect(page.locator("body")).to_contain_text(queue)
    # And rows that no queue's length shows: all messages that wait in lanes, and buried ones
    for row, messages in (("updates.*, all lanes", "0"), ("waiting for a retry", "0"), ("buried", "1")):
        expect(page.locator("#queue-table tr", has_text=row).locator("td").nth(1)).to_have_text(messages)


def status_of(url: str) -> int | None:
    """The HTTP status, or None if the connection fails."""
    try:
        return requests.get(url, timeout=30).status_code
    except requests.ConnectionError:
        return None
