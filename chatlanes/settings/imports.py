"""Imports the object that a setting names as `module:attribute`, and explains in one sentence why that fails.

Guarantees that an error inside the named module keeps its own traceback. The current directory is searched first, as
with `python -m`, whichever command started this process.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import iscoroutinefunction, signature
from pathlib import Path
from threading import Timer
from typing import Any

from chatlanes.settings.bot_files import bots_in

#: Enough for a large bot on a slow machine.
LONG_IMPORT_S = 20.0
#: Folders at the top of a clone, for `python -m poller` and the like. They are not installed.
ENTRY_POINTS = ("poller", "settings", "tasks")
#: Modules of bots whose packages have other names.
PACKAGES = {"telegram": "python-telegram-bot", "telebot": "pyTelegramBotAPI"}
CLONE = Path(__file__).parents[2]


class ImportPathError(Exception):
    """A setting names something that cannot be imported. The text says what to do."""


def import_function(setting: str, path: str, returns: str) -> Callable[..., Any]:
    """The function at `path`, the value of `setting`, which is not async. Raises ImportPathError with one sentence."""
    found = import_object(setting, path)
    check_callable(setting, path, found)
    if iscoroutinefunction(found):
        raise ImportPathError(f"{setting}={path} is an async function; name one that returns {returns}.")
    function: Callable[..., Any] = found
    return function


def check_callable(setting: str, path: str, found: Any) -> None:
    """Raises ImportPathError unless `found` is callable."""
    if not callable(found):
        kind = type(found).__name__
        raise ImportPathError(
            f"{setting}={path} names a value of type {kind}, which cannot be called; name a function."
        )


def import_object(setting: str, path: str) -> Any:
    """The object at `path`, the value of `setting`. Raises ImportPathError with one sentence."""
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ImportPathError(f"{setting}={path} is not an import path: write module:attribute, such as mybot:handle.")
    _look_in_current_directory()
    found = _import_module(setting, path, module_name)
    for name in attribute.split("."):
        if not hasattr(found, name):
            likely = _did_you_mean(name, dir(found))
            raise ImportPathError(
                f"{setting}={path}: {module_name} has no {attribute}; write a name that it defines{likely}."
            )
        found = getattr(found, name)
    return found


def _import_module(setting: str, path: str, module: str) -> Any:
    try:
        with explained(setting, path, f"importing {module}", module):
            return importlib.import_module(module)
    except ModuleNotFoundError:
        pass
    raise ImportPathError(
        f"{setting}={path}: there is no module {module} in {os.getcwd()} or among the installed ones; "
        f"start in the directory that holds it, or correct the name{_did_you_mean(path, bots_in(Path.cwd()))}."
    )


@contextmanager
def explained(setting: str, path: str, doing: str, module: str = "") -> Iterator[None]:
    """Wraps an import, or a program that BOT names. Raises ImportPathError with one sentence and the cause, but
    ModuleNotFoundError if `module` itself is missing.
    """
    try:
        with impatient(f"{setting}={path}: {doing}"):
            _set_up_django()
            yield
    except ModuleNotFoundError as missing:
        if missing.name is not None and f"{module}.".startswith(f"{missing.name}."):
            raise
        top = str(missing.name).partition(".")[0]
        package = f"the package {PACKAGES[top]}" if top in PACKAGES else "it"
        raise ImportPathError(
            f"{setting}={path}: {doing} failed, because it needs the module {missing.name}, which is not here; "
            f"install {package} or fix the import (the traceback above shows where).{_hidden(missing)}"
        ) from missing
    except Exception as failure:
        raise ImportPathError(
            f"{setting}={path}: {doing} failed with {type(failure).__name__}; "
            f"fix the module (the traceback above shows where).{_hidden(failure)}"
        ) from failure


def _did_you_mean(name: str, there: Iterable[str]) -> str:
    near = get_close_matches(name, there, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


@contextmanager
def impatient(what: str) -> Iterator[None]:
    """Prints a warning when it takes long: the import of a module that starts polling never ends."""
    said = (
        f"{what} is not done after {LONG_IMPORT_S:g} s. If it starts polling, put that under `if __name__ == ...` and "
        "name what handles its updates."
    )
    timer = Timer(LONG_IMPORT_S, lambda: print(said, file=sys.stderr, flush=True))  # noqa: T201 - logging is not set up
    timer.daemon = True
    timer.name = "alarm"  # it may outlive the import by a moment; it is not one of the bot's threads
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _look_in_current_directory() -> None:
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())


def _set_up_django() -> None:
    """As manage.py does: the module may import the models of its project."""
    if os.environ.get("DJANGO_SETTINGS_MODULE"):
        import django
        from django.apps import apps

        if not apps.ready:
            django.setup()


def warn_of_hidden_module(entry_point: str) -> None:
    """Python prefers the folder `poller/` of a clone to a `poller.py` beside it."""
    if os.path.exists(f"{entry_point}.py"):
        print(  # noqa: T201 - logging is not set up
            f"{entry_point}.py in {os.getcwd()} cannot be imported: the clone's folder {entry_point}/ hides it. "
            f"{_ELSEWHERE}",
            file=sys.stderr,
        )


#: The advice about a hidden module.
_ELSEWHERE = "Start `chatlanes ...` or `celery -A chatlanes ...` in a folder of the bot's own."


def _hidden(failure: Exception) -> str:
    """One more sentence if the import found an entry point of the clone instead of the bot's own module."""
    named = failure.name if isinstance(failure, ImportError) else getattr(getattr(failure, "obj", None), "__name__", "")
    name = str(named).partition(".")[0]
    found = getattr(sys.modules.get(name), "__file__", None)
    if name not in ENTRY_POINTS or not found or Path(found).parent != CLONE / name:
        return ""
    return f" {name} is the entry point of the clone in {CLONE}, which hides a module of that name. {_ELSEWHERE}"


def check_takes(name: str, function: Any, *arguments: str) -> None:
    """Raises TypeError unless `function` can be called with these arguments."""
    wanted = f"write a function, as `def {name}({', '.join(arguments)})`"
    if isinstance(function, type) or not callable(function):
        reason = "is a class" if isinstance(function, type) else "cannot be called"
        raise TypeError(f"{name}={function!r} {reason}; {wanted}")
    try:
        found = signature(function)
    except (TypeError, ValueError):  # written in C: its signature is unknown
        return
    try:
        found.bind(*arguments)
    except TypeError:
        number = "one argument" if len(arguments) == 1 else f"{len(arguments)} arguments"
        raise TypeError(f"{name} cannot be called with {number}; {wanted}") from None
