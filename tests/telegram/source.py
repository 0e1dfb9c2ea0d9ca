"""The Bot API as aiogram knows it. `make bot-api` writes it to chatlanes/telegram/bot_api.json, and the results of the
methods to results.json of the simulator.

aiogram's models are generated from Telegram's documentation, and the tests install it anyway. To learn what a newer Bot
API adds, install a newer aiogram and run tests/telegram/test_bot_api.py, which names each addition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import chatlanes.telegram
from chatlanes_sandbox.simulator.calls.chats import RESULTS_FILE, SPECIAL

FILE = Path(chatlanes.telegram.__file__).with_name("bot_api.json")
#: The simulator makes the results of these.
MADE = {*SPECIAL, "getMe", "getUpdates", "getWebhookInfo"}
TOKEN = "2:SIMULATED"
LINK = "https://t.me/simulated"
#: By the name of the field; a method that returns a text returns a link.
TEXTS = {"": LINK, "invite_link": LINK, "type": "private", "sticker_type": "regular"}


class Description(NamedTuple):
    """`updates`: kind -> type of its object. `types`: the types of updates -> their fields. `methods`: method -> its
    parameters. The names of optional fields and parameters end with a question mark.
    """

    version: str
    updates: dict[str, str]
    types: dict[str, list[str]]
    methods: dict[str, list[str]]


def recorded() -> Description:
    """The content of bot_api.json."""
    return Description(**json.loads(FILE.read_text()))


def installed() -> Description:
    """The methods and types of the installed aiogram. Deprecated fields and parameters are left out."""
    import aiogram
    from aiogram.types import Update

    kinds = {
        kind: next(each for each in get_args(field.annotation) if each is not type(None))
        for kind, field in Update.model_fields.items()
        if kind != "update_id"
    }
    of_methods = models()
    of_updates = {model.__name__: model for model in kinds.values()}
    return Description(
        aiogram.__api_version__,
        {kind: model.__name__ for kind, model in kinds.items()},
        {name: _fields(of_updates[name]) for name in sorted(of_updates)},
        {name: _fields(of_methods[name]) for name in sorted(of_methods)},
    )


def models() -> dict[str, Any]:
    """Method -> aiogram's model of it."""
    from aiogram import methods

    found = [getattr(methods, name) for name in methods.__all__]
    return {each.__api_method__: each for each in found if isinstance(vars(each).get("__api_method__"), str)}


def smallest_results() -> dict[str, Any]:
    """Method -> the smallest result that its documentation allows. Those that return True, or a message, and those
    whose result the simulator makes, are left out.
    """
    from aiogram.types import Message

    found = {
        name: TOKEN if name.endswith("BotToken") else _smallest(model.__returning__)
        for name, model in sorted(models().items())
        if name not in MADE and (model.__returning__ == list[Message] or Message not in _one_of(model.__returning__))
    }
    return {name: value for name, value in found.items() if value is not True}


def _one_of(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) or (kind,)


def _smallest(kind: Any, name: str = "") -> Any:
    if get_origin(kind) is list:
        return []
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_args(kind):  # one of several
        return _smallest(get_args(kind)[0], name)
    if kind is str:
        return TEXTS.get(name, "simulated")
    simple = {bool: not name, int: 0 if name.endswith(("count", "amount")) else 1, float: 0.0, datetime: 0}
    if kind in simple:
        return simple[kind]
    fields = {field.alias or name: field for name, field in kind.model_fields.items() if field.is_required()}
    fields |= {name: field for name, field in kind.model_fields.items() if isinstance(field.default, str)}
    return {
        name: field.default if isinstance(field.default, str) else _smallest(field.annotation, name)
        for name, field in fields.items()
    }


def _fields(model: Any) -> list[str]:
    return [
        (field.alias or name) + "?" * (not field.is_required())
        for name, field in model.model_fields.items()
        if not (isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("deprecated"))
    ]


def changes(known: Description, newer: Description) -> list[str]:
    """The names that `newer` adds, and those that it no longer has."""
    return [
        *_changed("kind of update", known.updates, newer.updates),
        *_changed("method", known.methods, newer.methods),
        *_changed_names("parameter", known.methods, newer.methods),
        *_changed_names("field", known.types, newer.types),
    ]


def _changed(what: str, known: dict[str, Any], newer: dict[str, Any]) -> Iterator[str]:
    for name, is_new in _differing(known, newer):
        yield f"new: {what} {name}: {newer[name]}" if is_new else f"gone: {what} {name}"


def _changed_names(what: str, known: dict[str, list[str]], newer: dict[str, list[str]]) -> Iterator[str]:
    for holder in sorted(known.keys() & newer.keys()):
        for name, is_new in _differing(known[holder], newer[holder]):
            yield f"{'new' if is_new else 'gone'}: {what} {holder}.{name}"


def _differing(known: Any, newer: Any) -> list[tuple[str, bool]]:
    return sorted((name, name in newer) for name in set(known) ^ set(newer))


def text_of(described: Description) -> str:
    """The content of bot_api.json: one line for each kind, type and method, so that a change is a short diff."""
    parts = [f'"version": {json.dumps(described.version)}']
    for name, table in described._asdict().items():
        if isinstance(table, dict):
            lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
            parts.append(f'"{name}": {{\n{lines}\n}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    found = installed()
    for change in changes(recorded(), found) if FILE.exists() else ():
        print(change)
    FILE.write_text(text_of(found))
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in smallest_results().items())
    RESULTS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"Bot API {found.version}: {len(found.updates)} kinds of updates, {len(found.methods)} methods")
