"""Executes a page that is a walk-through: its files, commands, outputs and conversations, in their order.

A block that begins with `# NAME.EXT` or `# .env` is a file. Others are read by their kind:

* `sh`: commands, each run in a shell. One that serves runs until Ctrl-C.
* `text`: the output of the last command; each line must occur in it. `…` stands for any text, `east` and `west` for any
  host, and a number of five digits or more for one number, the same wherever the page has it.
* `chat`: what users write to the bot, and what it answers.

HTML comments say what the reader does: `at: MACHINE`, `ctrl-c: COMMAND`, and `output: [MACHINE] COMMAND`, which looks
at that terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from celery_lanes.embedded_server import Server, start_server
from chatlanes_sandbox.simulator import Simulator
from tests.support.outside import outside
from tests.support.waiting import until

STEP = re.compile(r"^```(\w+)\n(.*?)^```|^<!-- ([\w-]+): (.*?) -->", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w/-]*\.\w+)\n")
COMMENT = re.compile(r"\s+# .*$")
SERVES = re.compile(r"chatlanes (sandbox|poller|worker|flower)\b")
#: Commands that only look, and may be given again.
LOOKS = re.compile(r"chatlanes lanes (check|status)\b")
MACHINES = ("east", "west")
TOKEN_OF_PATTERN = re.compile(r"…|\b(?:east|west)\b|\d{5,}|\s+")
PEOPLE = {"Ann": 7, "Ben": 8}


@dataclass(frozen=True)
class TutorialStep:
    kind: str  #: of a block, or the word of a comment
    text: str

    @property
    def file(self) -> str | None:
        found = FILE.match(self.text)
        return found[1] if found else None


def steps(page: str) -> Iterator[TutorialStep]:
    for kind, block, word, rest in STEP.findall(page):
        yield TutorialStep(kind or word, block or rest)


@dataclass
class Terminal:
    """A command on a machine. `seen` is how much of its output was compared."""

    command: str
    log: Path
    process: subprocess.Popen[bytes]
    seen: int = 0

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Reader:
    """Follows the page. `here` replaces addresses, ports and the token of the page by those of the test."""

    home: Path
    here: Mapping[str, str]
    telegram: Simulator | None = None
    redis: Server | None = None
    options: Mapping[str, str] = field(default_factory=dict)  #: added to a command: free ports
    environment: dict[str, str] = field(default_factory=dict)

    machine: str = MACHINES[0]
    terminals: list[Terminal] = field(default_factory=list)
    looks_at: Terminal | None = None
    numbers: dict[str, str] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.home / self.machine / "mybot"

    def do(self, step: TutorialStep) -> None:
        if step.file:
            self.write(step.file, self.translated(step.text))
        else:
            getattr(self, step.kind.replace("-", "_"))(step.text.rstrip("\n"))

    def write(self, name: str, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def translated(self, text: str) -> str:
        for theirs, ours in {**self.here, **self.numbers}.items():
            text = text.replace(theirs, ours)
        return text

    # -- what the page shows

    def sh(self, text: str) -> None:
        for line in text.splitlines():
            self.type(COMMENT.sub("", line))

    def text(self, text: str) -> None:
        """Waits until every line has occurred since the last look."""
        wanted = [line for line in text.splitlines() if line.strip() not in ("", "…")]
        try:
            until(lambda: self._has_printed(wanted))
        except AssertionError:
            assert self.looks_at
            said = self.looks_at.output[self.looks_at.seen :]
            missing = [line for line in wanted if not self._find(line)]
            raise AssertionError(f"{self.looks_at.command!r} did not print {missing}, but:\n{said[-5000:]}") from None

    def _has_printed(self, wanted: list[str]) -> bool:
        assert self.looks_at, wanted
        terminal = self.looks_at
        found = [match for line in wanted if (match := self._find(line))]
        if len(found) == len(wanted):
            terminal.seen += max(match.end() for match in found)
            for match in found:
                self.numbers.update({name[1:]: value for name, value in match.groupdict().items()})
            return True
        if LOOKS.match(terminal.command) and terminal.process.poll() is not None:
            self.looks_at = self._start(terminal.command)  # the reader was too quick, and looks again
        return False

    def _find(self, line: str) -> re.Match[str] | None:
        assert self.looks_at
        pattern = self.pattern(self._translated_output(line))
        return re.search(pattern, self.looks_at.output[self.looks_at.seen :])

    def _translated_output(self, line: str) -> str:
        for theirs, ours in self.here.items():
            line = line.replace(theirs, ours)
        return line

    def pattern(self, text: str) -> str:
        """A regular expression of a line, or of an answer."""
        whole, at, named = "", 0, set[str]()
        for token in TOKEN_OF_PATTERN.finditer(text):
            whole += re.escape(text[at : token.start()]) + self._of(token[0], named)
            at = token.end()
        return whole + re.escape(text[at:])

    def _of(self, token: str, named: set[str]) -> str:
        if token == "…":
            return ".*?"
        if token in MACHINES:
            return r"[\w.-]+"
        if token.isspace():
            return r"\s+"
        if token in self.numbers:
            return self.numbers[token]
        if token in named:
            return f"(?P=n{token})"
        if token in self.here.values():
            return token
        named.add(token)
        return rf"(?P<n{token}>\d+)"

    def chat(self, text: str) -> None:
        """Sends what people write, and waits for each answer."""
        assert self.telegram, "nothing stands in for Telegram"
        for line in text.splitlines():
            name, _, said = line.partition(": ")
            if name in PEOPLE:
                self.telegram.push(_message(name, said))
            else:
                self.answers.append(said)
                until(lambda: len(self.sent()) >= len(self.answers))
                self.check_answers()

    def sent(self) -> list[str]:
        assert self.telegram
        return [call["params"]["text"] for call in self.telegram.calls("sendMessage")]

    def check_answers(self) -> None:
        """The messages sent so far are those of the page, in its order: none is missing, none was sent twice."""
        sent = self.sent()
        for wanted, got in zip(self.answers, sent, strict=False):
            assert re.fullmatch(self.pattern(wanted), got), (self.answers, sent)

    def check_all_answers(self) -> None:
        """And nothing else was sent."""
        self.check_answers()
        assert len(self.sent()) == len(self.answers), (self.answers, self.sent())

    # -- what the reader does

    def at(self, machine: str) -> None:
        self.machine = machine

    def ctrl_c(self, command: str) -> None:
        terminal = self.looks_at = self._terminal(command)
        os.killpg(terminal.process.pid, signal.SIGINT)
        until(lambda: terminal.process.poll() is not None)

    def output(self, where: str) -> None:
        machine, _, command = where.partition(" ") if where.startswith(MACHINES) else (self.machine, "", where)
        self.looks_at = self._terminal(command, machine)

    def _terminal(self, command: str, machine: str | None = None) -> Terminal:
        folder = self.home / (machine or self.machine)
        mine = [each for each in self.terminals if each.command.startswith(command) and folder in each.log.parents]
        assert mine, f"nobody runs {command!r}"
        return mine[-1]

    def type(self, line: str) -> None:
        """Run a command, or what `THEIRS` has for a command of the reader's own system."""
        for begins, do in THEIRS.items():
            if line.startswith(begins):
                do(self, line)
                return
        terminal = self.looks_at = self._start(line)
        if not SERVES.match(line):
            until(lambda: terminal.process.poll() is not None)
            assert LOOKS.match(line) or terminal.process.returncode == 0, (line, terminal.output)

    def _start(self, line: str) -> Terminal:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder.parent / f"terminal{len(self.terminals)}.log"
        more = next((options for begins, options in self.options.items() if line.startswith(begins)), "")
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"{'exec ' if SERVES.match(line) else ''}{self.translated(line)} {more}"],
                cwd=self.folder,
                env={**outside(), "PYTHONUNBUFFERED": "1", **self.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.terminals.append(Terminal(line, log, process))
        return self.terminals[-1]

    def copy(self, line: str) -> None:
        """`scp FILE… west:mybot/`"""
        *files, target = line.split()[1:]
        to = self.home / target.partition(":")[0] / "mybot"
        to.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(self.folder / file, to)

    def restart_redis(self, _: str) -> None:
        """With all lines that were added to its configuration."""
        if self.redis:
            self.redis.stop()
        added = (self.home / "redis.conf").read_text().splitlines()
        extra = [word for line in added if not line.startswith("#") for word in f"--{line}".split()]
        port = int(self.here["6379"])
        self.redis = start_server(self.home / "redis", port=port, appendfsync="no", extra=extra)

    def configure_redis(self, line: str) -> None:
        with (self.home / "redis.conf").open("a") as conf:
            conf.write((self.folder / line.rpartition("< ")[2]).read_text())

    def nothing(self, _: str) -> None:
        pass

    def end(self) -> None:
        for terminal in self.terminals:
            with suppress(ProcessLookupError):
                os.killpg(terminal.process.pid, signal.SIGKILL)
            terminal.process.wait()
            print(f"----- {terminal.command}\n{terminal.output[-5000:]}")
        if self.redis:
            self.redis.stop()


#: Commands of the reader's system. tests/packaging installs chatlanes; here it is this clone.
THEIRS = {
    "git clone ": Reader.nothing,
    "mkdir mybot && cd mybot": Reader.nothing,
    "python3 -m venv ": Reader.nothing,
    ". .venv/": Reader.nothing,
    "pip install ": Reader.nothing,
    "sudo apt-get install ": Reader.nothing,
    "sudo ufw ": Reader.nothing,
    "sudo tee -a /etc/redis/redis.conf < ": Reader.configure_redis,
    "sudo systemctl restart redis-server": Reader.restart_redis,
    "scp ": Reader.copy,
}


def _message(name: str, text: str) -> dict[str, object]:
    person = {"id": PEOPLE[name], "is_bot": False, "first_name": name}
    chat = {"id": PEOPLE[name], "type": "private", "first_name": name}
    return {"message": {"message_id": 1, "date": 0, "chat": chat, "from": person, "text": text}}
