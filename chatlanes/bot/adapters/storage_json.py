"""The JSON of what frameworks store: JSON's own values, and the Python values that bots commonly keep. Pure.

Guarantees that what it takes comes back equal, and equal values as the same text; and TypeError, with the place and the
type, for anything else. Decoding makes nothing but data: a class is only looked up among those that the bot has
imported, and must be an enum or a dataclass.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

#: A dict with only one key, which begins so, says what its value is.
_MARK = "\0"


class JsonCodec(NamedTuple):
    """How values of a type are told in JSON, and made of it again."""

    told: Callable[[Any], Any]
    made: Callable[[Any], Any]


def text(value: Any, what: str = "it") -> str:
    """Raises TypeError, which calls it `what`."""
    return json.dumps(_told(value, what), separators=(",", ":"))


def value(found: str | bytes) -> Any:
    """Raises LookupError for a class that is not there any more."""
    return json.loads(found, object_hook=_made)


def also(name: str, kind: type, told: Callable[[Any], Any], made: Callable[[Any], Any]) -> None:
    """A framework's own type, and those under it. What `told` gives is JSON, or made of other such values."""
    _BASES[kind] = name
    _KINDS[name] = JsonCodec(told, made)


def _told(value: Any, place: str) -> Any:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, Enum)):
        return value
    if isinstance(value, list):
        return [_told(each, f"{place}[{number}]") for number, each in enumerate(value)]
    if type(value) is dict and all(type(key) is str and not key.startswith(_MARK) for key in value):
        return {key: _told(inner, f"{place}[{key!r}]") for key, inner in value.items()}
    name = _name_of(value)
    if name is None:
        raise TypeError(
            f"{place} is a {type(value).__name__}, which cannot be kept: keep text, numbers, dates, lists, sets, "
            "dicts, enums or dataclasses"
        )
    return {_MARK + name: _told(_KINDS[name].told(value), place)}


def _name_of(value: Any) -> str | None:
    kinds = [kind for kind in type(value).__mro__ if kind in _BASES]
    if kinds and not hasattr(value, "_fields"):  # a named tuple would come back without its names
        return _BASES[kinds[0]]
    return "dataclass" if dataclasses.is_dataclass(value) and not isinstance(value, type) else None


def _made(found: dict[str, Any]) -> Any:
    [name, *others] = found or [""]
    if others or not name.startswith(_MARK):
        return found
    return _KINDS[name.removeprefix(_MARK)].made(found[name])


def _path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(path: str) -> Any:
    module, _, names = path.partition(":")
    found: Any = sys.modules.get(module)
    for name in names.split("."):
        found = getattr(found, name, None)
    if isinstance(found, type) and (issubclass(found, Enum) or dataclasses.is_dataclass(found)):
        return found
    raise LookupError(f"what is kept is a {path}, and there is no such enum or dataclass here any more")


def _enum(value: Enum) -> list[Any]:
    return [_path(type(value)), value.name if value.name in type(value).__members__ else [value.value]]


def _enum_again(told: list[Any]) -> Any:
    kind, name = _class(told[0]), told[1]
    return kind(*name) if isinstance(name, list) else kind[name]


def _dataclass(value: Any) -> list[Any]:
    return [_path(type(value)), {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}]


def _dataclass_again(told: list[Any]) -> Any:
    """As it was, without its __init__; a field that is new since then has its default."""
    kind = _class(told[0])
    made = object.__new__(kind)
    for each in dataclasses.fields(kind):
        if each.name in told[1]:
            object.__setattr__(made, each.name, told[1][each.name])
        elif each.default_factory is not dataclasses.MISSING:
            object.__setattr__(made, each.name, each.default_factory())
    return made


#: What a defaultdict may make.
_FACTORIES = {each.__name__: each for each in (int, float, str, bool, list, dict, set)}


def _defaultdict(value: defaultdict[Any, Any]) -> list[Any]:
    name = getattr(value.default_factory, "__name__", "")
    if _FACTORIES.get(name) is not value.default_factory:
        raise TypeError(f"a defaultdict of {name or 'nothing'} cannot be kept: write one of {', '.join(_FACTORIES)}")
    return [name, _pairs(value)]


def _pairs(value: dict[Any, Any]) -> list[list[Any]]:
    return [[key, inner] for key, inner in value.items()]


def _in_order(value: Any) -> list[Any]:
    """A set has none, and would be another text each time."""
    return sorted(value, key=text)


_KINDS = {
    "pairs": JsonCodec(_pairs, dict),
    "counter": JsonCodec(_pairs, lambda told: Counter(dict(told))),
    "defaultdict": JsonCodec(_defaultdict, lambda told: defaultdict(_FACTORIES[told[0]], told[1])),
    "tuple": JsonCodec(list, tuple),
    "set": JsonCodec(_in_order, set),
    "frozenset": JsonCodec(_in_order, frozenset),
    "deque": JsonCodec(list, deque),
    "datetime": JsonCodec(datetime.isoformat, datetime.fromisoformat),
    "date": JsonCodec(date.isoformat, date.fromisoformat),
    "time": JsonCodec(time.isoformat, time.fromisoformat),
    "timedelta": JsonCodec(lambda each: [each.days, each.seconds, each.microseconds], lambda told: timedelta(*told)),
    "decimal": JsonCodec(str, Decimal),
    "uuid": JsonCodec(str, UUID),
    "bytes": JsonCodec(bytes.hex, bytes.fromhex),
    "enum": JsonCodec(_enum, _enum_again),
    "dataclass": JsonCodec(_dataclass, _dataclass_again),
}
#: In the order of a type's own bases: the first that is here says what it is.
_BASES: dict[type, str] = {
    **dict.fromkeys([dict], "pairs"),
    **{kind: kind.__name__.lower() for kind in (Counter, defaultdict, tuple, set, frozenset, deque, bytes, Enum)},
    **{kind: kind.__name__.lower() for kind in (datetime, date, time, timedelta, Decimal, UUID)},
}
