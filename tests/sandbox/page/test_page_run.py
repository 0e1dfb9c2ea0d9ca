"""`chatlanes sandbox --bot mybot:bot`, used as the author of a bot uses it, with each framework."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.calling import wait_until
from tests.sandbox.page.paging import PageClient
from tests.sandbox.sandboxes import SandboxProcess
from tests.support import ROOT

PICTURE = (ROOT / "chatlanes/demo/photo.png").read_bytes()
FRAMEWORKS = {"telebot_bot": "bot", "aiogram_bot": "dp", "ptb_bot": "application"}
BROKEN = "import nowhere.to_be_found\n"
#: One that fails until there is a file.
PLAIN = f"""
import sys
from pathlib import Path
sys.path.append({str(ROOT)!r})
from examples.plain_bot import handle
def bot(ctx):
    if ctx.text == "fail?" and not Path("fixed").exists():
        raise ValueError("<b>no</b>")
    handle(ctx)
"""


def framework(name: str) -> str:
    return f"import sys\nsys.path.append({str(ROOT)!r})\nfrom examples.{name} import {FRAMEWORKS[name]} as bot\n"


def workers(page: PageClient) -> dict[str, int]:
    """Those that run, and their processes."""
    lanes = page.last("lanes") or page.snapshot["lanes"]
    return {worker["name"]: worker["pid"] for worker in lanes["workers"] if worker["alive"]}


def restart(page: PageClient, file: Path, bot: str) -> None:
    """With an edited bot."""
    before = set(workers(page).values())
    file.write_text(bot)
    page.do("restart")
    wait_until(lambda: len(workers(page)) == 2 and not before & set(workers(page).values()))


def converse(page: PageClient, name: str) -> None:
    """One person's way through what each example bot can do."""
    chat_id = page.do("chats", type="private", title="", users=[name])["id"]
    said: dict[int, Any] = {}

    def answer(text: str, holds: Callable[[Any], object]) -> Any:
        sent = page.say(text, chat_id, chat_id)
        said[sent["message_id"]] = sent
        return page.message(
            lambda each: each["update_id"] == sent["update_id"] and each["user"]["is_bot"] and holds(each)
        )

    answer("/start", lambda each: each["text"].startswith("Send me something"))
    answer("hello", lambda each: each["text"] == "hello")
    answer("/count", lambda each: each["text"] == "1")
    answer("/count", lambda each: each["text"] == "2")
    asked = answer("/button", lambda each: each["buttons"])
    page.do("press", chat_id=chat_id, user_id=chat_id, message_id=asked["message_id"], data="pressed")
    thanks = {"chat_id": chat_id, "user_id": chat_id, "text": "Thank you.", "alert": False}
    wait_until(lambda: page.last("notice") == thanks)
    shown = answer("/photo", lambda each: each["kind"] == "photo")
    assert page.get(shown["photo"]).content == PICTURE
    # And what became of each is known
    for message_id in said:
        done = page.message(
            lambda each, sought=message_id: (
                each["message_id"] == sought and each["chat_id"] == chat_id and each["state"] == "done"
            )
        )
        assert (done["attempt"], done["waited_s"] >= 0, done["took_s"] >= 0) == (1, True, True)


@pytest.mark.exhaustive
def test_a_bot_is_written_tried_and_fixed_on_the_page(sandbox: Callable[..., SandboxProcess], tmp_path: Path) -> None:
    file = tmp_path / "mybot.py"
    # Given a bot that cannot be imported
    file.write_text(BROKEN)
    running = sandbox("--bot", "mybot:bot", LEASE_SECONDS="3", MAX_ATTEMPTS="1")
    running.wait_for("the workers start when the bot can be imported")
    page = PageClient(running.url("simulator"))
    # Then page and terminal say why, with the place
    wait_until(lambda: page.snapshot["problems"] or page.last("problem"))
    problem = page.last("problem") or page.snapshot["problems"][0]
    assert (problem["kind"], problem["solved"]) == ("import", False)
    assert problem["title"] in running.said
    assert "No module named 'nowhere'" in problem["traceback"]
    assert "mybot.py" in problem["traceback"].splitlines()[1]  # frames of the import machinery are omitted
    # When the file is fixed, then the bot runs again by itself
    file.write_text(PLAIN)
    wait_until(lambda: page.last("problem") and page.last("problem")["solved"])
    wait_until(lambda: len(workers(page)) == 2)
    converse(page, "plain_bot")
    # When a worker is killed in a flood
    page.do("flood", count=130)
    killed = page.do("kill", worker=None)
    # Then all of it is answered in order, nothing is lost, and there are two workers again
    wait_until(lambda: is_over(page))
    assert page.last("lanes")["killed"] == 1
    assert killed["pid"] not in workers(page).values()
    # When the handler fails, then the page has the traceback, and the update can be replayed when it has been fixed
    failed = page.say("fail?")
    buried = page.message(lambda each: each["update_id"] == failed["update_id"] and each["state"] == "buried")
    assert buried["error"] == "ValueError: <b>no</b>"
    assert (page.last("problem")["update_id"], page.last("problem")["chat"]) == (failed["update_id"], "Ann")
    # It begins with the bot's own code
    assert "mybot.py" in page.last("problem")["traceback"].splitlines()[1]
    told = page.get(f"/page/updates/{failed['update_id']}").json()
    assert told["traceback"].endswith("ValueError: <b>no</b>")
    assert told["update"]["message"]["text"] == "fail?"
    (tmp_path / "fixed").touch()
    page.do("replay", update_id=failed["update_id"])
    answered = page.message(lambda each: each["text"] == "fail?" and each["user"]["is_bot"])
    [call] = page.get(f"/page/updates/{failed['update_id']}").json()["calls"]
    assert (call["method"], call["answer"]["message_id"]) == ("sendMessage", answered["message_id"])
    # When the page asks for a restart, then the bot is the one that stands in the file now
    restart(page, file, framework("telebot_bot"))
    converse(page, "telebot_bot")
    # When everything is stopped and started again, then the messages are there
    running.ctrl_c()
    assert running.end() == 0
    again = sandbox("--bot", "mybot:bot", "--workers", "1")
    again.wait_for("Ctrl-C stops everything")
    snapshot = PageClient(again.url("simulator")).snapshot
    assert answered in snapshot["messages"]
    # And the chats stand in the order in which they were made
    made = [chat["title"] for chat in snapshot["chats"]]
    assert made == ["Ann", "Ben", "Ann and Ben", "plain_bot", "telebot_bot"]


@pytest.mark.exhaustive
def test_the_page_runs_bots_of_the_other_frameworks(sandbox: Callable[..., SandboxProcess], tmp_path: Path) -> None:
    file = tmp_path / "mybot.py"
    file.write_text(PLAIN)
    running = sandbox("--bot", "mybot:bot", LEASE_SECONDS="3")
    running.wait_for("ready: open")
    page = PageClient(running.url("simulator"))
    wait_until(lambda: len(workers(page)) == 2)
    for name in ("aiogram_bot", "ptb_bot"):
        restart(page, file, framework(name))
        converse(page, name)


@pytest.mark.exhaustive
def test_with_reload_a_broken_bot_leaves_the_last_good_code_running(
    sandbox: Callable[..., SandboxProcess], tmp_path: Path
) -> None:
    file = tmp_path / "mybot.py"
    file.write_text("def handle(ctx):\n    ctx.reply('first')\n")
    running = sandbox("--bot", "mybot:handle", "--workers", "1", "--reload")
    running.wait_for("ready: open")
    page = PageClient(running.url("simulator"))
    # When the file is broken
    file.write_text(BROKEN)
    # Then terminal and page say which code runs, and since when
    since = running.wait_for(r"worker still runs the code of (\d\d:\d\d:\d\d), the last that could be imported\n")[1]
    wait_until(lambda: page.last("problem"))
    at_s = page.last("problem")["runs_since_s"]
    assert time.strftime("%H:%M:%S", time.localtime(at_s)) == since
    page.say("Who is there?")
    page.message(lambda each: each["text"] == "first")
    # And when it is right again, the new code runs
    file.write_text("def handle(ctx):\n    ctx.reply('second')\n")
    wait_until(lambda: page.last("problem")["solved"])
    wait_until(lambda: running.wait_for("worker stopped") and workers(page))
    page.say("And now?")
    page.message(lambda each: each["text"] == "second")


def is_over(page: PageClient) -> bool:
    lanes = page.last("lanes")
    counts = lanes["counts"]
    assert (lanes["lost"], lanes["out_of_order"]) == (0, 0)
    return (
        counts["waiting"] == counts["handed_out"] == counts["running"] == 0
        and len(workers(page)) == 2
        and counts["appended"] > 130
    )
