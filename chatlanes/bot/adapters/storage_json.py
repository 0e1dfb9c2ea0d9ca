"""Encodes the data that frameworks store as JSON: JSON's own types, and common Python types. Pure.

An accepted value decodes to an equal one, and equal values give the same text; anything else raises a TypeError that
names the place and the type. Decoding only creates data: a class must be an enum or a dataclass that the bot has
already imported.
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
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID

#: A dict whose only key begins with this holds an encoded value of the type that the key names.
_MARK = "\0"


class JsonCodec(NamedTuple):
    """Converts values of one type to JSON values and back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def text(value: Any, what: str = "it") -> str:
    """Encode a value. Raises TypeError, in which `what` names the value."""
    return json.dumps(_encoded(value, what), separators=(",", ":"))


def value(found: str | bytes) -> Any:
    """Decode a value. Raises LookupError for a class that no longer exists."""
    return json.loads(found, object_hook=_decoded)


def register(name: str, kind: type, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
    """Add a framework's type and its subclasses. `encode` returns a JSON value or another value that can be encoded."""
    _BASES[kind] = name
    _KINDS[name] = JsonCodec(encode, decode)


def register_objects(
    library: str, module: ModuleType, base: type, dump: Callable[[Any], Any], load: Callable[[Any, Any], Any]
) -> None:
    """Add the classes of a framework, which are attributes of a module."""

    def decode(encoded: list[Any]) -> Any:
        kind = getattr(module, encoded[0], None)
        if not (isinstance(kind, type) and issubclass(kind, base)):
            path = f"{module.__name__}.{encoded[0]}"
            raise LookupError(f"the stored value is of {path}, which this version of {library} lacks")
        return load(kind, encoded[1])

    name = module.__name__.partition(".")[0]
    register(name, base, lambda found: [type(found).__name__, dump(found)], decode)


def found_at(path: str) -> Any:
    """The object at `module:name`, if the bot has imported the module and it has the name; otherwise None."""
    module, _, names = path.partition(":")
    found: Any = sys.modules.get(module)
    for name in names.split("."):
        found = getattr(found, name, None)
    return found


def _encoded(value: Any, place: str) -> Any:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, Enum)):
        return value
    if isinstance(value, list):
        return [_encoded(each, f"{place}[{number}]") for number, each in enumerate(value)]
    if type(value) is dict and all(type(key) is str and not key.startswith(_MARK) for key in value):
        return {key: _encoded(inner, f"{place}[{key!r}]") for key, inner in value.items()}
    name = _name_of(value)
    if name is None:
        raise TypeError(
            f"{place} is a {type(value).__name__}, which cannot be stored: use text, numbers, dates, lists, sets, "
            "dicts, enums or dataclasses"
        )
    return {_MARK + name: _encoded(_KINDS[name].encode(value), place)}


def _name_of(value: Any) -> str | None:
    kinds = [kind for kind in type(value).__mro__ if kind in _BASES]
    if kinds and not hasattr(value, "_fields"):  # a named tuple would be decoded as a plain tuple
        return _BASES[kinds[0]]
    return "dataclass" if dataclasses.is_dataclass(value) and not isinstance(value, type) else None


def _decoded(found: dict[str, Any]) -> Any:
    [name, *others] = found or [""]
    if others or not name.startswith(_MARK):
        return found
    return _KINDS[name.removeprefix(_MARK)].decode(found[name])


def _path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(path: str) -> Any:
    found = found_at(path)
    if isinstance(found, type) and (issubclass(found, Enum) or dataclasses.is_dataclass(found)):
        return found
    raise LookupError(f"the stored value is a {path}, an enum or dataclass that no longer exists")


def _enum(value: Enum) -> list[Any]:
    return [_path(type(value)), value.name if value.name in type(value).__members__ else [value.value]]


def _decode_enum(encoded: list[Any]) -> Any:
    kind, name = _class(encoded[0]), encoded[1]
    return kind(*name) if isinstance(name, list) else kind[name]


def _dataclass(value: Any) -> list[Any]:
    return [_path(type(value)), {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}]


def _decode_dataclass(encoded: list[Any]) -> Any:
    """The dataclass, created without calling __init__. A field added since it was stored has its default factory's
    value.
    """
    kind = _class(encoded[0])
    made = object.__new__(kind)
    for each in dataclasses.fields(kind):
        if each.name in encoded[1]:
            object.__setattr__(made, each.name, encoded[1][each.name])
        elif each.default_factory is not dataclasses.MISSING:
            object.__setattr__(made, each.name, each.default_factory())
    return made


#: The default factories that a defaultdict may have.
_FACTORIES = {each.__name__: each for each in (int, float, str, bool, list, dict, set)}


def _defaultdict(value: defaultdict[Any, Any]) -> list[Any]:
    name = getattr(value.default_factory, "__name__", "")
    if _FACTORIES.get(name) is not value.default_factory:
        raise TypeError(f"a defaultdict of {name or 'nothing'} cannot be stored: use one of {', '.join(_FACTORIES)}")
    return [name, _pairs(value)]


def _pairs(value: dict[Any, Any]) -> list[list[Any]]:
    return [[key, inner] for key, inner in value.items()]


def _in_order(value: Any) -> list[Any]:
    """The items of a set in a stable order, so that equal sets give the same text."""
    return sorted(value, key=text)


_KINDS = {
    "pairs": JsonCodec(_pairs, dict),
    "counter": JsonCodec(_pairs, lambda encoded: Counter(dict(encoded))),
    "defaultdict": JsonCodec(_defaultdict, lambda encoded: defaultdict(_FACTORIES[encoded[0]], encoded[1])),
    "tuple": JsonCodec(list, tuple),
    "set": JsonCodec(_in_order, set),
    "frozenset": JsonCodec(_in_order, frozenset),
    "deque": JsonCodec(list, deque),
    "datetime": JsonCodec(datetime.isoformat, datetime.fromisoformat),
    "date": JsonCodec(date.isoformat, date.fromisoformat),
    "time": JsonCodec(time.isoformat, time.fromisoformat),
    "timedelta": JsonCodec(lambda each: [each.days, each.seconds, each.microseconds], lambda parts: timedelta(*parts)),
    "decimal": JsonCodec(str, Decimal),
    "uuid": JsonCodec(str, UUID),
    "bytes": JsonCodec(bytes.hex, bytes.fromhex),
    "enum": JsonCodec(_enum, _decode_enum),
    "dataclass": JsonCodec(_dataclass, _decode_dataclass),
}
#: Type -> name of its codec. A value uses the first class of its MRO that is listed here.
_BASES: dict[type, str] = {
    **dict.fromkeys([dict], "pairs"),
    **{kind: kind.__name__.lower() for kind in (Counter, defaultdict, tuple, set, frozenset, deque, bytes, Enum)},
    **{kind: kind.__name__.lower() for kind in (datetime, date, time, timedelta, Decimal, UUID)},
}
