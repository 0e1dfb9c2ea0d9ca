"""`chatlanes sandbox --bot mybot:bot`, used as the author of a bot uses it, with each framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sandbox.calling import wait_until
from tests.sandbox.page.paging import PageClient
from tests.sandbox.sandboxes import SandboxProcess
from tests.support import ROOT

PICTURE = (ROOT / "chatlanes/demo/photo.png").read_bytes()
FRAMEWORKS = {"telebot_bot": "bot", "aiogram_bot": "dp", "ptb_bot": "application"}
BROKEN = "import nowhere.to_be_found\n"
#: A bot that fails until a file exists.
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
    """Names and process ids of the running workers."""
    lanes = page.last("lanes") or page.snapshot["lanes"]
    return {worker["name"]: worker["pid"] for worker in lanes["workers"] if worker["alive"]}


def restart(page: PageClient, file: Path, bot: str) -> None:
    """Restarts the workers with an edited bot."""
    before = set(workers(page).values())
    file.write_text(bot)
    page.do("restart")
    wait_until(lambda: len(workers(page)) == 2 and not before & set(workers(page).values()))


def converse(page: PageClient, name: str) -> None:
    """A conversation that uses everything that the example bots can do."""
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
    # And the result of each update is known
    for message_id in said:
        done = page.message(
            lambda each, sought=message_id: (
                each["message_id"] == sought and each["chat_id"] == chat_id and each["state"] == "done"
            )
        )
        assert (done["attempt"], done["waited_s"] >= 0, done["took_s"] >= 0) == (1, True, True)


def test_bot_is_tried_and_fixed_on_the_page(sandbox: Callable[..., SandboxProcess], tmp_path: Path) -> None:
    file = tmp_path / "mybot.py"
    # Given a bot that cannot be imported
    file.write_text(BROKEN)
    running = sandbox("--bot", "mybot:bot", LEASE_SECONDS="3", MAX_ATTEMPTS="1")
    running.wait_for("the workers start when the bot has been mended")
    page = PageClient(running.url("simulator"))
    # Then page and terminal show the reason and its place
    wait_until(lambda: page.snapshot["problems"] or page.last("problem"))
    problem = page.last("problem") or page.snapshot["problems"][0]
    assert (problem["kind"], problem["solved"]) == ("import", False)
    assert problem["title"] in running.said
    assert "No module named 'nowhere'" in problem["traceback"]
    assert "mybot.py" in problem["traceback"].splitlines()[1]  # without the frames of the importer
    # When the file is fixed, then the bot starts by itself
    file.write_text(PLAIN)
    wait_until(lambda: page.last("problem") and page.last("problem")["solved"])
    wait_until(lambda: len(workers(page)) == 2)
    converse(page, "plain_bot")
    # When a worker is killed during a flood
    page.do("flood", count=130)
    killed = page.do("kill", worker=None)
    # Then all updates are answered in order, none is lost, and two workers run again
    wait_until(lambda: is_over(page))
    assert page.last("lanes")["killed"] == 1
    assert killed["pid"] not in workers(page).values()
    # When the handler fails, then the page shows the traceback, and the update can be replayed after a fix
    failed = page.say("fail?")
    buried = page.message(lambda each: each["update_id"] == failed["update_id"] and each["state"] == "buried")
    assert buried["error"] == "ValueError: <b>no</b>"
    assert page.last("problem")["update_id"] == failed["update_id"]
    details = page.get(f"/page/updates/{failed['update_id']}").json()
    assert details["traceback"].endswith("ValueError: <b>no</b>")
    assert details["update"]["message"]["text"] == "fail?"
    (tmp_path / "fixed").touch()
    page.do("replay", update_id=failed["update_id"])
    answered = page.message(lambda each: each["text"] == "fail?" and each["user"]["is_bot"])
    [call] = page.get(f"/page/updates/{failed['update_id']}").json()["calls"]
    assert (call["method"], call["answer"]["message_id"]) == ("sendMessage", answered["message_id"])
    # When the page restarts the workers, then they run the current file
    for name in FRAMEWORKS:
        restart(page, file, framework(name))
        converse(page, name)
    # When the sandbox is stopped and started again, then the messages are still there
    running.ctrl_c()
    assert running.end() == 0
    again = sandbox("--bot", "mybot:bot", "--workers", "1")
    again.wait_for("Ctrl-C stops everything")
    assert answered in PageClient(again.url("simulator")).snapshot["messages"]


def is_over(page: PageClient) -> bool:
    lanes = page.last("lanes")
    counts = lanes["counts"]
    assert (lanes["lost"], lanes["out_of_order"]) == (0, 0)
    return counts["waiting"] == counts["running"] == 0 and len(workers(page)) == 2 and counts["appended"] > 130
