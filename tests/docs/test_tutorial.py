"""docs/tutorial.md, as a reader follows it: two folders are its two machines, a simulator is Telegram."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_lanes.embedded_server import free_port
from chatlanes_sandbox.simulator import Simulator, start
from tests.docs.pages import ROOT
from tests.docs.tutorial import Reader, steps

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PAGE = ROOT / "docs" / "tutorial.md"
TOKEN = "123456:SECRET"
#: From this heading on the bot is a real one, on a Redis of the reader's own.
REAL = "## Redis for real"


@pytest.fixture
def telegram() -> Iterator[Simulator]:
    with start(TOKEN) as running:
        yield running


@pytest.fixture
def reader(tmp_path: Path, telegram: Simulator) -> Iterator[Reader]:
    ports = {name: str(free_port()) for name in ("6379", "8081", "5555")}
    here = {
        **ports,
        "10.0.0.5": "127.0.0.2",
        "123456:ABC-your-token-from-BotFather": TOKEN,
        "https://api.telegram.org": telegram.url,
        "@my_bot": "@simulated_bot",
        "time.sleep(20)": "time.sleep(10)",
    }
    redis, page, flower = ports.values()
    options = {
        "chatlanes sandbox": f"--port-redis {redis} --port-simulator {page} --port-flower {flower}",
        "chatlanes flower": f"--port={flower}",
    }
    reader = Reader(tmp_path, here, options=options)
    # Shorter waits than the page's; its steps and outputs are the same
    reader.environment.update(LEASE_SECONDS="5", RETRY_BACKOFF="0.3")
    reader.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield reader
    reader.end()


def test_the_page(reader: Reader, telegram: Simulator) -> None:
    in_sandbox, _, for_real = PAGE.read_text().partition(REAL)
    # Without a token: the sandbox is Redis and Telegram
    reader.telegram = Simulator(f"http://127.0.0.1:{reader.here['8081']}", token="")
    for step in steps(in_sandbox):
        reader.do(step)
    # With one: the page's Redis and .env, and another Telegram
    reader.environment["BOT_API_URL"] = telegram.url
    reader.telegram, reader.answers = telegram, []
    for step in steps(for_real):
        reader.do(step)
    reader.check_all_answers()
