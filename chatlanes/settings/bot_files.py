"""Finds bots in Python files without importing them, for suggestions in messages.

Finds what a module defines at its top level under a usual name or by a framework's class. A guess, never an error.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

#: Classes whose objects BOT may name, in any framework. A bot's dispatcher comes before its bot.
CLASSES = ("Dispatcher", "Application", "ApplicationBuilder", "AsyncTeleBot", "TeleBot")
#: Functions that are a handler if they take one argument.
HANDLERS = ("handle", "handler", "on_update")
#: Objects of chatlanes' own class.
OWN = "Bot"
#: Files that are read, and characters of each.
MOST_FILES, LARGEST = 50, 200_000


def bots_in(folder: Path) -> list[str]:
    """`module:attribute` of each file directly in this folder that seems to define a bot."""
    files = sorted(folder.glob("*.py"))[:MOST_FILES]
    found = ((file.stem, bot_in(file)) for file in files if file.stem.isidentifier())
    return [f"{module}:{attribute}" for module, attribute in found if attribute]


def bot_in(file: Path) -> str | None:
    """The name under which the file defines a bot."""
    try:
        if file.stat().st_size > LARGEST:
            return None
        module = ast.parse(file.read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None
    named = dict(_defined(module))
    return next((named[kind] for kind in (*CLASSES, OWN, "def") if kind in named), None)


def likely_path(text: str) -> str | None:
    """The import path that was probably meant by a file name or a dotted name; None: no idea."""
    module, colon, attribute = text.partition(":")
    if module.endswith(".py"):
        module = module.removesuffix(".py").strip("./").replace("/", ".")
    elif not colon and "." in module and not _file_of(module).exists():
        module, _, attribute = module.rpartition(".")
    names = [*module.split("."), *attribute.split(".")] if attribute else module.split(".")
    if not all(name.isidentifier() for name in names):
        return None
    path = f"{module}:{attribute or _attribute_of(module)}"
    return None if path == text else path


def _attribute_of(module: str) -> str:
    return bot_in(_file_of(module)) or "handle"


def _file_of(module: str) -> Path:
    return Path(*module.split(".")).with_suffix(".py")


def _defined(module: ast.Module) -> Iterator[tuple[str, str]]:
    """(kind, name) of each object that may be a bot; of several of one kind, the last one counts."""
    own = {
        alias.asname or alias.name
        for node in module.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("chatlanes")
        for alias in node.names
    }
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name in HANDLERS and len(node.args.args) == 1:
                yield "def", node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            kind = next((name for name in _called(node.value) if name in CLASSES or (name == OWN and OWN in own)), None)
            if kind:
                yield kind, node.targets[0].id


def _called(value: ast.expr) -> Iterator[str]:
    """The names in `Application.builder().token(…).build()`, `aiogram.Dispatcher()` and the like."""
    if not isinstance(value, ast.Call):
        return
    for node in ast.walk(value.func):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
