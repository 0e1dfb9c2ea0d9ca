"""Loads Lua verbs and binds their arguments by the names in their headers.

Guarantees that a call which does not match the header raises TypeError before anything is sent. In a header,
`-- ARGV  holder lease_ms` names the fixed arguments, `--       then id fence, …` the group that repeats, `-- With` the
chunks of lua/lib that the file needs after the prelude, and `-- Seldom` functions that are built when one of them is
first called. Redis builds every function of a script again in each call. So a script has only the definitions that its
verb reaches, and the values of its constants instead of their names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Generic, NamedTuple, TypeVar

from celery_lanes.protocol.envelope import TIMER_TEXTS

_FIXED = re.compile(r"^-- ARGV  (.*)$", re.MULTILINE)
_WITH = re.compile(r"^-- With  ([\w ]+)$", re.MULTILINE)
_SELDOM = re.compile(r"^-- Seldom  ([\w ]+)$", re.MULTILINE)
_GROUP = re.compile(r"^--       then ([\w ]+?)(?:,.*)?$", re.MULTILINE)

_COMMENT_LINES = re.compile(r"^ *--.*\n|^\n", re.MULTILINE)
_TEXT_OR_COMMENT = re.compile(r"'(?:\\.|[^'\\\n])*'|--.*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(f"{_TEXT_OR_COMMENT.pattern}|{_NAME.pattern}")
_VALUE = re.compile(r"'[^'\n]*'|\d+")
_CONSTANTS = re.compile(
    rf"^local ([A-Z_]+(?:, [A-Z_]+)*) = ((?:{_VALUE.pattern})(?:, (?:{_VALUE.pattern}))*)(?: --.*)?\n", re.MULTILINE
)
_STEP_FIELD = re.compile(r"\bstep\.\w+")
_DEFINITION = re.compile(r"^(?=local |step\.)", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)\((?:[^\n]* end(?: *--[^\n]*)?\n|.*?^end\n)", re.MULTILINE | re.DOTALL)
_ASKS_REDIS = re.compile(r"(?!local function).*(?:redis\.call|is_special)\(", re.DOTALL)
_DEFINES = re.compile(r"^(?:local function (\w+)|(?:local )?([\w.]+(?:, [\w.]+)*))")

LANES = "celery_lanes.protocol"

T = TypeVar("T")

Argument = str | bytes | int | float


def _as_it_is(answer: Any) -> Any:
    return answer


_sources: dict[str, str] = {}


def source_of(sha: str) -> str:
    """The source of a script of this process."""
    return _sources[sha]


class Script:
    """One verb, from the folder `lua` of a package. `group` is empty if no arguments repeat."""

    def __init__(self, name: str, package: str = LANES) -> None:
        verb = _read(name, package)
        self.name = name
        self.source = with_values(assembled(name, package))
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        _sources[self.sha] = self.source
        self.fixed, self.group = contract(verb)

    def command(
        self,
        keys: Sequence[str] = (),
        group: Iterable[Sequence[Argument]] = (),
        read: Callable[[Any], Any] = _as_it_is,
        /,
        **fixed: Argument,
    ) -> Command[Any]:
        """The command that calls it. Raises TypeError if the arguments do not match the header."""
        if tuple(fixed) != self.fixed:
            raise TypeError(f"{self.name}.lua takes {self.fixed}, not {tuple(fixed)}")
        arguments: list[Argument] = ["EVALSHA", self.sha, len(keys), *keys, *fixed.values()]
        for values in group:
            if len(values) != len(self.group):
                raise TypeError(f"{self.name}.lua repeats {self.group}, not {values!r}")
            arguments.extend(values)
        return Command(self, arguments, read)


def assembled(name: str, package: str = LANES) -> str:
    """The verb after the definitions that it reaches."""
    verb = _read(name, package)
    found = [each for chunk in ["prelude", *chunks(name, package)] for each in definitions(chunk, package)]
    seldom = {each for line in _SELDOM.findall(verb) for each in line.split()}
    return built_later(seldom, reached(verb, [_texts_definition(), *found]), verb)


def built_later(seldom: set[str], found: Sequence[Definition], verb: str) -> str:
    """The definitions and the verb. The functions with the names `seldom`, of chunks or of the verb, and what only they
    reach, are in one function, which builds them once. What asks Redis for its value is not among them: Redis is asked
    before a step changes anything.
    """
    if not seldom:
        return "".join(each.text for each in found) + verb
    own = [Definition({each[1]}, names_in(each[0]), each[0]) for each in _FUNCTION.finditer(verb)]
    always = "".join([_FUNCTION.sub("", verb), *(each.text for each in found if _ASKS_REDIS.match(each.text))])
    often = reached(always, [each for each in [*found, *own] if not each.defines & seldom])
    later = [each for each in [*found, *own] if each not in often]
    fields = ", ".join(f"{name} = {name}" for each in later for name in sorted(each.defines & seldom))
    built = f"local built = {{ {fields} }}\nfunction seldom() return built end\nreturn built\nend\n"
    builder = "".join(["function seldom()\n", *(each.text for each in later), built])
    before, after = "", verb  # after the last one of the verb, the functions have all names that they use
    for each in own:
        if each in later:
            text, _, after = after.partition(each.text)
            before += text
    before = "".join(each.text for each in found if each in often) + before
    return "".join(["local seldom\n", _called(seldom, before), builder, _called(seldom, after)])


def _called(seldom: set[str], source: str) -> str:
    """The source with these functions where they are built."""
    return _TOKEN.sub(lambda found: f"seldom().{found[0]}" if found[0] in seldom else found[0], source)


def with_values(source: str) -> str:
    """The source with the values of its constants, which are strings and numbers with a name in capitals."""
    values = {
        name: value
        for names, line in _CONSTANTS.findall(source)
        for name, value in zip(names.split(", "), _VALUE.findall(line), strict=True)
    }
    return _TOKEN.sub(lambda found: values.get(found[0], found[0]), _CONSTANTS.sub("", source))


#: For each version of an app's dictionary, the texts in the order of their codes (lua/lib/timer_packing.lua).
Texts = tuple[tuple[str, ...], ...]
_texts: Texts = TIMER_TEXTS
#: The codes are the control characters from 11 to 29.
MOST_TEXTS = 19


def use_texts(versions: Texts) -> None:
    """Sets the texts that many timers of this process contain, by version; the last version packs. An empty text has no
    meaning.

    A version that a release has used is never changed, nor continued: its codes are in Redis. A release that does not
    know a version postpones its timers. Raises ValueError for too many texts, or if the process has other ones.
    """
    global _texts
    if versions in ((), _texts):
        return
    if _texts != TIMER_TEXTS:
        raise ValueError("the apps of a process share the texts of their timers: give both the same timer_texts")
    if any(len(texts) > MOST_TEXTS for texts in versions):
        raise ValueError(f"timer_texts: each version has at most {MOST_TEXTS} texts")
    _texts = versions
    script.cache_clear()
    digest.cache_clear()


def _texts_definition() -> Definition:
    versions = ", ".join("{ " + ", ".join(map(quoted, texts)) + " }" for texts in _texts)
    return Definition({"TEXTS"}, set(), f"local TEXTS = {{ {versions} }}\n")


def quoted(text: str) -> str:
    """As a string of Lua."""
    plain = "".join(chr(c) if 32 <= c < 127 and c not in b"'\\" else f"\\{c:03d}" for c in text.encode())
    return f"'{plain}'"


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """A command of a script or, if `script` is None, a plain one. `read` makes the result from the answer."""

    script: Script | None
    arguments: list[Argument]
    read: Callable[[Any], T] = _as_it_is


def plain(*arguments: Argument) -> Command[Any]:
    """A Redis command without a script."""
    return Command(None, [*arguments])


def chunks(name: str, package: str = LANES) -> list[str]:
    """The chunks of `lua/lib` that a file needs, in order: each after the chunks that it needs itself."""
    needed = [chunk for line in _WITH.findall(_read(name, package)) for chunk in line.split()]
    return list(dict.fromkeys(each for chunk in needed for each in [*chunks(f"lib/{chunk}", package), chunk]))


class Definition(NamedTuple):
    """A part of a chunk: the names that it defines, all names in it, and its text without lines of comments only."""

    defines: set[str]
    names: set[str]
    text: str


@cache
def definitions(chunk: str, package: str = LANES) -> list[Definition]:
    """The chunk in parts: each line that begins with `local` or `step.` begins one."""
    before, *texts = _DEFINITION.split(without_comments(f"lib/{chunk}", package))
    if before:
        raise ValueError(f"{chunk}.lua begins with {before!r:.40}, not with a definition")
    return [Definition(set("".join(_DEFINES.findall(text)[0]).split(", ")), names_in(text), text) for text in texts]


def names_in(source: str) -> set[str]:
    """All names in Lua code, and those of the fields of `step`."""
    code = _TEXT_OR_COMMENT.sub("", source)
    return {*_NAME.findall(code), *_STEP_FIELD.findall(code)}


def reached(verb: str, found: Sequence[Definition]) -> list[Definition]:
    """The definitions whose names the verb uses, and those whose names these use, in their order.

    A name that also means something else there may add a definition too many; none is missing.
    """
    names, known = names_in(verb), 0
    while known < len(names):
        known = len(names)
        names.update(*(each.names for each in found if each.defines & names))
    return [each for each in found if each.defines & names]


def without_comments(name: str, package: str = LANES) -> str:
    """The file without lines that are empty or comments only."""
    return _COMMENT_LINES.sub("", _read(name, package))


@cache
def _read(name: str, package: str) -> str:
    return (files(package) / "lua" / f"{name}.lua").read_text("utf-8")


def contract(verb: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fixed arguments of a verb, and those that repeat, by the names in its header."""
    argv, group = _FIXED.search(verb), _GROUP.search(verb)
    words = argv.group(1) if argv else ""
    if group is None and "once for each" in words:  # only a group
        return (), tuple(words.split(",")[0].split())
    return tuple(words.split()), tuple(group.group(1).split()) if group else ()


@cache
def script(name: str, package: str = LANES) -> Script:
    return Script(name, package)


def verb(
    name: str,
    read: Callable[[Any], T],
    *,
    keys: Sequence[str] = (),
    group: Iterable[Sequence[Argument]] = (),
    **fixed: Argument,
) -> Command[T]:
    """The command of a verb of this package, and how its answer is read."""
    return script(name).command(keys, group, read, **fixed)


@cache
def digest(package: str = LANES) -> str:
    """The same in two processes whose scripts, and the texts of their timers, are the same."""
    lua = files(package) / "lua"
    found = [file for folder in (lua, lua / "lib") for file in folder.iterdir() if file.is_file()]
    sources = sorted((file.name, file.read_text("utf-8")) for file in found)
    return hashlib.sha1(repr((sources, _texts)).encode(), usedforsecurity=False).hexdigest()[:12]
