"""The examples of the package's README work as they are written, in a folder of their own."""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from celery_lanes.embedded_server import free_port
from chatlanes_sandbox.simulator import Simulator
from tests.sandbox.calling import PATIENCE_S, BotClient
from tests.support import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

README = (ROOT / "packages/chatlanes-sandbox/README.md").read_text()
PORT = "8081"

MYBOT = """
from aiogram import Dispatcher

dp = Dispatcher()

@dp.message()
async def echo(message):
    await message.answer(f"You wrote: {message.text}")
"""
#: A session without a test of the fixture, of someone who has no use for it.
BYSTANDER = """
import sys

def test_nothing_of_it_is_imported():
    ours = [name for name in sys.modules if name.startswith(("celery", "chatlanes", "redis", "requests"))]
    assert ours == ["chatlanes_sandbox", "chatlanes_sandbox.pytest_plugin"]
"""


def pytest_in(folder: Path, test: str) -> str:
    """The output of pytest in that folder, with warnings as errors."""
    (folder / "test_bot.py").write_text(test)
    (folder / "mybot.py").write_text(MYBOT)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_bot.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S * 4, check=False)
    return ran.stdout


def block(kind: str, with_text: str) -> str:
    found = [text for text in re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL) if with_text in text]
    assert len(found) == 1
    return found[0]


def test_the_test_of_an_aiogram_bot(tmp_path: Path) -> None:
    example = block("python", "def test_echo")
    assert "1 passed" in pytest_in(tmp_path, example)
    again = example[example.index("def test_echo") :].replace("test_echo", "test_again")
    assert "2 passed" in pytest_in(tmp_path, example + again)
    # And it fails with the reason when the bot says something else, or nothing
    said = pytest_in(tmp_path, example.replace("You wrote: hello", "hello"))
    assert "AssertionError: assert 'You wrote: hello' == 'hello'" in said
    said = pytest_in(
        tmp_path, example.replace('telegram.write("hello")', "").replace(".sent)", ".sent, timeout_s=0.5)")
    )
    assert re.search(r"NotSentError: 0 of 1 messages in 0.5 s. The bot has called .*getUpdates.*; 0 updates wait", said)


def test_a_bot_in_the_loop_that_is_blocked_is_explained(tmp_path: Path) -> None:
    example = block("python", "def test_echo").replace(
        "await asyncio.to_thread(telegram.sent)", "telegram.sent(timeout_s=0.5)"
    )
    assert "`sent` blocks the event loop that calls it" in pytest_in(tmp_path, example)


def test_each_test_begins_with_an_empty_one(tmp_path: Path) -> None:
    test = """
    import pytest

    @pytest.mark.parametrize("number", [1, 2])
    def test_it(telegram, number):
        assert telegram.write("hello")["update_id"] == 1
    """
    assert "2 passed" in pytest_in(tmp_path, textwrap.dedent(test))


def test_a_session_that_does_not_use_it_imports_nothing(tmp_path: Path) -> None:
    said = pytest_in(tmp_path, BYSTANDER)
    assert "1 passed" in said, said


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_the_commands_for_any_language() -> None:
    port = str(free_port())
    started, _, *lines = block("sh", "/control/messages").replace(PORT, port).splitlines()
    program = Path(sys.executable).with_name("chatlanes-sandbox")
    assert started.split()[0] == program.name
    with subprocess.Popen([program, *started.split()[1:-1]], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout
            assert running.stdout.readline().endswith(f":{port}\n")
            bot = BotClient(Simulator(f"http://127.0.0.1:{port}", re.findall(r"token (\S+)", README)[-1]))
            said = []
            for line in lines:
                ran = subprocess.run(["bash", "-c", f"{line} -s -f"], capture_output=True, text=True, check=True)
                said.append(ran.stdout)
                if "hello" in line:
                    assert bot.updates()[0]["message"]["text"] == "hello"
                    yes = {"inline_keyboard": [[{"text": "Yes", "callback_data": "yes"}]]}
                    bot.result("sendMessage", chat_id=7, text="Sure?", reply_markup=yes)
            wrote, sent, pressed, reset = said
            assert '"text":"hello"' in wrote
            assert '"text":"Sure?"' in sent
            assert '"data":"yes"' in pressed
            assert reset == "true"
            bot.close()
        finally:
            running.terminate()
