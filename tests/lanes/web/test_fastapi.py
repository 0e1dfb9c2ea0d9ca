"""celery_lanes.fastapi in a real uvicorn, with a real worker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from celery import Celery

import celery_lanes
from celery_lanes.errors import LanesError
from celery_lanes.fastapi import router
from tests.lanes.web.shop import CELERY_APP, Shop, shop
from tests.support.waiting import until

README = (Path(celery_lanes.__file__).parents[1] / "README.md").read_text()
FILES = dict(re.findall(r"^```python\n# (main.py|lanes_api.py)\n(.*?)^```", README, re.MULTILINE | re.DOTALL))


@pytest.fixture
def web(tmp_path: Path, redis_url: str) -> Iterator[Shop]:
    with shop(tmp_path, redis_url) as made:
        # The files of the README
        for name, text in FILES.items():
            made.write(name, text)
        made.write("shop/__init__.py", "import celery_lanes as lanes\nfrom shop.celery import app\ncharge = None\n")
        made.start(
            "web", "uvicorn", "lanes_api:web", f"--port={made.port}", until="Uvicorn running", STAFF_KEY="secret"
        )
        yield made


def ask(web: Shop, method: str, path: str, code: int = 200) -> Any:
    answer = requests.request(method, f"{web.url}/lanes{path}", headers={"x-key": "secret"}, timeout=60)
    assert answer.status_code == code, answer.text
    return answer.json()


def charged(order: dict[str, int]) -> dict[str, Any]:
    return {"task": "shop.tasks.charge", "args": [order], "kwargs": {}}


@pytest.mark.slow
def test_reads_and_changes(web: Shop) -> None:
    # Given a paused lane with two orders, and a timer
    assert ask(web, "PUT", "/paused/lane/customer:9") == {"result": "paused customer:9"}
    first, _ = web.order(9, 1), web.order(9, 2)
    timer = web.order(9, 3, countdown=3600)
    # Then they are shown
    status = ask(web, "GET", "/status")
    assert (status["groups"]["orders"]["backlog"], status["groups"]["orders"]["rate"]) == (2, None)
    assert status["lanes"][0]["lane"] == "customer:9"
    lane = ask(web, "GET", f"/lanes/{quote('customer:9', safe='')}")
    assert (lane["lane"], lane["in_lane"], lane["messages"][0]["id"]) == ("customer:9", 2, first)
    assert lane["messages"][0]["doing"].startswith("paused; waiting for ")
    [listed] = ask(web, "GET", "/timers?lane=customer:9")
    assert (listed["id"], listed["message"]) == (timer, charged({"customer": 9, "number": 3}))
    assert ask(web, "GET", "/timers?group=orders&limit=1") == [listed]
    assert ask(web, "DELETE", f"/timers/{timer}") == {"result": f"cancelled {timer}"}
    assert ask(web, "GET", "/timers") == []
    # When a worker runs, and the lane is resumed, then they run in order
    web.worker()
    assert ask(web, "DELETE", "/paused/lane/customer:9") == {"result": "resumed customer:9"}
    until(lambda: web.charged == ["9 1", "9 2"])


@pytest.mark.slow
def test_dead_letters(web: Shop) -> None:
    # Given two orders that the worker buries
    web.worker()
    ids = [web.order(666, number) for number in (1, 2)]
    until(lambda: len(ask(web, "GET", "/dead")) == 2)
    assert [each["id"] for each in ask(web, "GET", "/dead?lane=customer:666")] == ids
    assert ask(web, "GET", "/dead?lane=customer:9") == []
    shown = ask(web, "GET", f"/dead/{ids[0]}")
    assert (shown["message"], shown["errors"][0]["traceback"]) == (charged({"customer": 666, "number": 1}), "in charge")
    # When one is dropped and the other replayed, after a fix
    web.fix()
    assert ask(web, "DELETE", f"/dead/{ids[0]}") == {"result": "dropped 1 message"}
    assert ask(web, "PUT", f"/dead/{ids[1]}/replay") == {"result": "replayed 1 message"}
    # Then the other runs
    until(lambda: web.charged == ["666 2"])
    assert ask(web, "GET", "/dead") == []


@pytest.mark.slow
def test_a_redis_that_does_not_answer(tmp_path: Path, web: Shop) -> None:
    settings = "app.conf.broker_transport_options = {'lease_seconds': 1}\n"
    web.write("shop/away.py", CELERY_APP.format(url="redis://127.0.0.1:1") + settings)
    web.write("away.py", FILES["lanes_api.py"].replace("from shop import", "from shop.away import"))
    web.start("away", "uvicorn", "away:web", "--port=0", until="Uvicorn running", STAFF_KEY="secret")
    [port] = re.findall(r"Uvicorn running on http://127.0.0.1:(\d+)", (tmp_path / "away.log").read_text())
    answer = requests.get(f"http://127.0.0.1:{port}/lanes/status", headers={"x-key": "secret"}, timeout=120)
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("Redis at 127.0.0.1:1 does not answer: ")


@pytest.mark.slow
def test_refusals(web: Shop) -> None:
    for method, path in (("GET", "/status"), ("PUT", "/paused/lane/a"), ("DELETE", "/dead/a")):
        assert requests.request(method, f"{web.url}/lanes{path}", timeout=60).status_code == 401
    # A form of another site can only GET and POST
    assert requests.post(f"{web.url}/lanes/paused/lane/a", timeout=60).status_code == 405
    assert "there is no such message" in ask(web, "GET", "/dead/nothing", code=404)["detail"]
    assert "there is no lane queue" in ask(web, "PUT", "/paused/queue/nothing", code=404)["detail"]
    assert "--limit" in ask(web, "GET", "/dead?limit=0", code=422)["detail"]
    # What looks like an option is an id
    assert "--all is not buried" in ask(web, "DELETE", "/dead/--all", code=404)["detail"]


def test_a_router_needs_a_dependency() -> None:
    app = Celery("shop", set_as_current=False)
    with pytest.raises(LanesError, match="needs a dependency that refuses others"):
        router(app)
    with pytest.raises(LanesError, match="not both"):
        router(app, lambda: None, is_public=True)
    assert len(router(app, is_public=True).routes) == 10


def test_without_fastapi_it_says_so() -> None:
    code = "import sys; sys.modules['fastapi'] = None; import celery_lanes.fastapi"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == "ImportError: celery_lanes.fastapi needs FastAPI: pip install fastapi"
