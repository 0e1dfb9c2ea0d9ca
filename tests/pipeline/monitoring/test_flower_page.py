"""Flower's pages in a real browser, protected by a password."""

from __future__ import annotations

import re

import requests
from playwright.sync_api import Page, expect

from chatlanes.sandbox.ports import free_port
from tests.pipeline.conftest import MakePipeline
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
            expect(row).to_contain_text(f"(message, chat {chat}, update {update})")
            expect(row).to_contain_text(state)
        page.goto(f"{url}/task/{BOT_ID}:{failing}")
        expect(page.locator("body")).to_contain_text("RuntimeError: attempt 1 of")
        expect_queues(page, url)


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
