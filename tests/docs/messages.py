"""Every message that docs/troubleshooting.md has to explain, read from the source.

Collected are warnings and errors of the log, the errors that end a command, and the sentences that functions give to
either (`SENTENCES`). A message is its text with `…` for whatever is filled in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from chatlanes.updates.words import WORDS
from tests.docs.pages import ROOT

SOURCES = [
    ROOT / "chatlanes",
    ROOT / "packages/celery-lanes/celery_lanes",
    ROOT / "packages/chatlanes-sandbox/chatlanes_sandbox",
]
LEVELS = {"warning", "error", "critical", "exception"}
LOGGERS = {"log", "logger"}
#: Functions that log or print the text they are given, and which of their arguments that is; `-1` is the last.
RELAYS = {"_bad": 1, "_refuse": 0, "_tell": 0, "_warn": 0, "count": 0, "exit": -1, "give_up": 1}
#: Exceptions whose text ends a command, or is logged.
ENDING = {
    "AddError",
    "BotStartError",
    "CannotListenError",
    "CommandError",
    "DirectoryTakenError",
    "FloodedError",
    "GaveUpError",
    "ImportPathError",
    "Misconfigured",
    "NotOpenedError",
    "PollConflictError",
    "OutboxFullError",
    "PortInUseError",
    "SendError",
    "ServerFailedError",
    "ServerUnfit",
    "SettingsError",
    "StaysError",
    "SimulatorFailedError",
    "StartError",
    "StorageError",
    "TelegramTroubleError",
    "TokenRefusedError",
    "UnknownBotError",
    "UnknownScheduleError",
    "UpdateTimeoutError",
    "UsageError",
}
#: Functions and constants whose texts are messages: those that a log line or an error takes whole.
SENTENCES: dict[str, set[str]] = {
    "chatlanes/bots.py": {"_asked", "_checked_token"},
    "chatlanes/bot/schedules.py": {"_problems", "_problems_of_cron"},
    "chatlanes/bot/session.py": {"check_order"},
    "chatlanes/cli/context.py": {"no_answer"},
    "chatlanes/cli/check.py": {"of_intake", "of_schedules"},
    "packages/celery-lanes/celery_lanes/cli/context.py": {"no_answer"},
    "packages/celery-lanes/celery_lanes/cli/check.py": {"namesakes", "of_unread_queues"},
    "packages/celery-lanes/celery_lanes/cli/outbox.py": {"_pass"},
    "packages/celery-lanes/celery_lanes/fastapi.py": {"router"},
    "packages/celery-lanes/celery_lanes/fast/tracer.py": {"_hook"},
    "packages/celery-lanes/celery_lanes/protocol/data_loss.py": {"sentence"},
    "packages/celery-lanes/celery_lanes/protocol/server.py": {"IS_CLUSTER", "advice", "_eviction"},
    "chatlanes/poller/bot_api.py": {"_holder", "result_of"},
    "chatlanes/poller/webhook/validation.py": {"Rejection"},
    "packages/chatlanes-sandbox/chatlanes_sandbox/command.py": {"sandbox"},
    "packages/chatlanes-sandbox/chatlanes_sandbox/supervisor/import_check.py": {"_try"},
    "packages/chatlanes-sandbox/chatlanes_sandbox/run.py": {"supervise"},
    "chatlanes/settings/bots.py": {"_bot", "_tables", "_together", "_token", "_wrong_keys"},
    "chatlanes/settings/imports.py": {"_hidden", "impatient", "warn_of_hidden_module"},
    "chatlanes/settings/reading.py": {"_line"},
    "chatlanes/settings/spelling.py": {"misspelled", "_read"},
    "chatlanes/telegram/methods.py": {"check_method", "check_parameters"},
    "chatlanes/traces/otel.py": {"_exporter"},
    "chatlanes/updates/deployments.py": {"differing", "sentence"},
    "chatlanes/updates/queues.py": {"left_behind", "unknown"},
}
#: A message with fewer letters of its own is another one's frame, such as "%s: %s".
LEAST_LETTERS = 9
FORMAT = re.compile(r"%(?:\(\w+\))?[-#0 +]*\d*(?:\.\d+)?[srdfgxi]")


@dataclass(frozen=True, order=True)
class LoggedMessage:
    text: str
    place: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@cache
def messages() -> tuple[LoggedMessage, ...]:
    return tuple(sorted({message for message in _all() if len(re.findall(r"\w", message.text)) >= LEAST_LETTERS}))


@cache
def frames() -> tuple[LoggedMessage, ...]:
    """Messages with too few words of their own: log lines and errors that carry a sentence made elsewhere."""
    return tuple(sorted({message for message in _all() if len(re.findall(r"\w", message.text)) < LEAST_LETTERS}))


@cache
def _trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text()) for source in SOURCES for file in sorted(source.rglob("*.py"))}


def _all() -> Iterator[LoggedMessage]:
    for file, tree in _trees().items():
        for node in _tellers(tree, str(file.relative_to(ROOT))):
            for text in rendered(node):
                yield LoggedMessage(
                    re.sub(r"…(\.?…)+", "…", " ".join(text.split())), f"{file.relative_to(ROOT)}:{node.lineno}"
                )


def _tellers(tree: ast.Module, file: str) -> Iterator[ast.expr]:
    """The expressions of messages in a file."""
    named = SENTENCES.get(file, set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _told(node)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in named:
            yield from _texts_in(node)
        elif isinstance(node, ast.Assign) and _name(node.targets[0]) in named:
            yield node.value


def _told(call: ast.Call) -> Iterator[ast.expr]:
    """Of a call that logs, ends a command, or makes the error that does."""
    name, arguments = _name(call.func), call.args
    if not arguments:
        return
    if isinstance(call.func, ast.Attribute) and _name(call.func.value) in LOGGERS:
        if name in LEVELS:
            yield arguments[0]
        elif name == "log" and re.search("WARNING|ERROR|CRITICAL", ast.unparse(arguments[0])):
            yield arguments[1]
    elif name in ENDING:
        yield arguments[0]
    elif name in RELAYS and len(arguments) > RELAYS[name]:
        yield arguments[RELAYS[name]]
    elif name == "Finding" and ast.unparse(arguments[0]) != "True":  # a line of `lanes check`
        yield arguments[2]
    elif name == "Durability" and ast.unparse(arguments[0]) == "Durable.NOT":
        yield arguments[1]


def _texts_in(node: ast.FunctionDef | ast.ClassDef) -> Iterator[ast.expr]:
    """What a function returns, yields, raises, prints, collects in a list or names `problem`, `said` or `sentence`; the
    constants of a class.
    """
    for inner in ast.walk(node):
        match inner:
            case (
                ast.Return(value=ast.IfExp(body=value))
                | ast.Return(value=ast.expr() as value)
                | ast.Yield(value=ast.expr() as value)
            ):
                yield from _parts(value)
            case ast.Raise(exc=ast.Call(args=[value])) | ast.Call(func=ast.Attribute(attr="append"), args=[value]):
                yield from _parts(value)
            case ast.Call(func=ast.Name(id="print"), args=[value]):
                yield from _parts(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if name in {"problem", "said", "sentence"} or isinstance(node, ast.ClassDef):
                    yield from _parts(value)


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    """A text, or those of a list or a tuple."""
    if isinstance(value, ast.List | ast.Tuple):
        for each in value.elts:
            yield from _parts(each)
    elif isinstance(value, ast.ListComp):
        yield from _parts(value.elt)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):  # "…".rstrip()
        yield from _parts(value.func.value)
    elif isinstance(value, ast.JoinedStr | ast.Constant):
        yield value


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def rendered(node: ast.expr) -> Iterator[str]:
    """Each text that the expression may be, as far as it is known."""
    match node:
        case ast.Constant(value=str(text)):
            yield FORMAT.sub("…", text)
        case ast.JoinedStr(values=values):
            for parts in product(*(list(rendered(value)) for value in values)):
                yield "".join(parts)
        case ast.FormattedValue(value=ast.Name() | ast.IfExp() | ast.Attribute() as value):
            yield from rendered(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from ("".join(parts) for parts in product(list(rendered(left)), list(rendered(right))))
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*rendered(body), *rendered(orelse))
        case ast.BoolOp(values=values):
            for value in values:
                yield from rendered(value)
        case ast.Name(id=name) if name in constants():
            yield from rendered(constants()[name])
        case _:
            yield _word(node) or "…"


def _word(node: ast.expr) -> str:
    """The text that celery_lanes fills in for its user; empty for any other expression."""
    match node:
        case ast.Attribute(value=ast.Name(id="words"), attr=word):
            return str(getattr(WORDS, word))
    return ""


@cache
def constants() -> dict[str, ast.expr]:
    """The texts that modules name, such as `NO_BOT_GIVEN`."""
    found = dict[str, ast.expr]()
    for tree in _trees().values():
        for node in tree.body:
            if isinstance(node, ast.Assign) and _is_text(node.value) and (name := _name(node.targets[0])).isupper():
                found[name] = node.value
    return found


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))


def entries(page: Path) -> list[str]:
    """The messages that the page explains: headings of the fourth level that are one span of code."""
    return [text.strip() for _, text in re.findall(r"^#### (`+)(.+?)\1$", page.read_text(), re.MULTILINE)]
