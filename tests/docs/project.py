"""A project of the reader, with the files that a page shows, and its processes beside those of chatlanes."""

from __future__ import annotations

import subprocess
import sys

import requests

from celery_lanes.embedded_server import free_port
from tests.docs.tutorial import steps
from tests.support import ROOT
from tests.support.outside import outside
from tests.support.pipeline import Pipeline
from tests.support.process import Process
from tests.support.waiting import until


class Project:
    """`pipeline` is on the project's folder; its settings are the environment of all processes."""

    def __init__(self, pipeline: Pipeline, page: str) -> None:
        self.pipeline = pipeline
        self.folder = pipeline.directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._page = ROOT / "docs" / page
        pipeline.settings["WEBHOOK_URL"] = f"{self.url}/telegram"

    def write_files_of_page(self) -> None:
        for step in steps(self._page.read_text()):
            if step.file:
                self.write(step.file, step.text)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    # -- processes

    def run(self, *command: str) -> str:
        """The output of a command that must succeed: `module argument …`, as `python -m` runs it."""
        here = {name: str(value) for name, value in self.pipeline.settings.items()}
        ended = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env={**outside(), "PYTHONPATH": f"{ROOT}:{self.folder}", "NO_PROXY": "127.0.0.1", **here},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def start(self, kind: str, *command: str) -> Process:
        return self.pipeline._start(kind, [sys.executable, "-m", *command], {})

    def start_web_server(self, app: str) -> Process:
        """Start it, wait until it answers, and let Telegram send the updates there."""
        server = self.start("web", "uvicorn", app, f"--port={self.port}")
        server.tells("Uvicorn running")
        self.run("chatlanes", "webhook", "set")
        return server

    # -- Telegram

    def answers(self, chat: int) -> list[str]:
        calls = self.pipeline.simulator.calls("sendMessage")
        return [call["params"]["text"] for call in calls if call["params"]["chat_id"] == chat]

    def ask(self, text: str, chat: int) -> str:
        """Write to the bot, and wait for its answer."""
        before = len(self.answers(chat))
        sender = {"id": chat, "is_bot": False, "first_name": "Ann"}
        where = {"id": chat, "type": "private"}
        self.pipeline.simulator.push(
            {"message": {"message_id": 1, "date": 0, "chat": where, "from": sender, "text": text}}
        )
        return until(lambda: self.answers(chat)[before:])[0]

    def get(self, path: str) -> requests.Response:
        return requests.get(f"{self.url}{path}", timeout=30)
