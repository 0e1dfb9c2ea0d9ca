"""Compares the header of each script with the names that the script binds, and with the arguments the store sends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import chatlanes.lanes.protocol
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.commands import (
    CancelTimer,
    Delete,
    Guard,
    Move,
    MoveTimer,
    NewMessage,
    Set,
    SetTimer,
    commit_commands,
)
from chatlanes.lanes.protocol.replies import History, Kind
from chatlanes.lanes.protocol.scripts import Argument, Script, chunks, script
from chatlanes.lanes.protocol.store import Store

LUA = Path(chatlanes.lanes.protocol.__file__).parent / "lua"
#: A verb has arguments. Shared chunks, which are prepended to verbs, have none.
FILES = {path.stem: path.read_text() for path in LUA.rglob("*.lua")}
SOURCES = {name: source for name, source in FILES.items() if "\n-- ARGV" in source}
VERBS = sorted(SOURCES)
PRELUDE = FILES["prelude"]

#: The maximum length of a file.
MOST_LINES = 90

verbs = pytest.mark.parametrize("verb", VERBS)


def header(verb: str) -> list[str]:
    lines = SOURCES[verb].splitlines()
    return lines[: next(number for number, line in enumerate(lines) if not line.startswith("--"))]


def code(verb: str) -> str:
    """The script without its comments."""
    return re.sub(r"--.*", "", SOURCES[verb])


@verbs
def test_a_header_has_its_parts_in_order(verb: str) -> None:
    opening = [line for line in header(verb) if re.match(rf"-- ({verb}:|KEYS |ARGV |Returns )", line)]
    assert [line.split()[1] for line in opening] == [f"{verb}:", "KEYS", "ARGV", "Returns"]
    assert header(verb)[0] == opening[0]


@verbs
def test_arguments_are_bound_by_name_in_order(verb: str) -> None:
    fixed = script(verb).fixed
    bound = re.findall(r"^local ([\w, ]+) = unpack\(ARGV, 1, (\d+)\)$", SOURCES[verb], re.MULTILINE)
    if fixed:
        assert bound == [(", ".join(fixed), str(len(fixed)))]
        assert SOURCES[verb].splitlines()[len(header(verb))].startswith("local " + fixed[0])
    else:
        assert bound == []
    assert set(re.findall(r"ARGV\[(\d+)\]", code(verb))) == set()  # no argument is used by its number


@verbs
def test_the_group_is_bound_by_its_names_and_its_size(verb: str) -> None:
    fixed, group = script(verb).fixed, script(verb).group
    loops = re.findall(r"for i = (\d+), (#ARGV|\d+ \+ \d+ \* settles)(?:, (\d+))? do", code(verb))
    if not group:
        assert loops == []
        return
    [(first, step)] = {(first, step) for first, _, step in loops}
    assert (int(first), int(step or 1)) == (len(fixed) + 1, len(group))
    named = f"local {', '.join(group)} = unpack(ARGV, i, i + {len(group) - 1})"
    used = {f"ARGV[{index}]" for index in re.findall(r"ARGV\[([^\]]+)\]", code(verb))}
    if named not in code(verb):
        assert used == {"ARGV[i]" if offset == 0 else f"ARGV[i + {offset}]" for offset in range(len(group))}


@verbs
def test_keys_are_used_if_the_header_lists_them(verb: str) -> None:
    [line] = [line for line in header(verb) if line.startswith("-- KEYS")]
    assert bool(re.search(r"\bKEYS\b", code(verb))) == (line != "-- KEYS  none")


@pytest.mark.parametrize("name", FILES)
def test_files_are_short(name: str) -> None:
    assert len(FILES[name].splitlines()) <= MOST_LINES


def test_a_chunk_follows_the_chunks_that_it_needs() -> None:
    assert chunks("turn") == [
        "paused",
        "ready",
        "collecting",
        "places",
        "successors",
        "take_back",
        "totals",
        "ending",
        "leasing",
        "rotation",
        "foreign",
        "taking",
    ]


CHUNKS = {path.stem: path.read_text() for path in (LUA / "lib").glob("*.lua") if path.stem != "prelude"}


def bare(source: str) -> str:
    """The source without comments and string literals."""
    return re.sub(r"'[^']*'", "''", re.sub(r"--.*", "", source))


def declared(source: str, indent: str) -> set[str]:
    """Locals, except constants, at the top of a file or inside of its functions."""
    lines = re.findall(rf"^{indent}local (?!function)([^=\n]+?)(?: =.*)?$", bare(source), re.MULTILINE)
    return {name.strip() for line in lines for name in line.split(",") if not name.strip().isupper()}


def assigned(source: str) -> set[str]:
    """Names that are assigned to, also to one of their fields."""
    targets = re.findall(r"^(?!\s*local )([^=~<>\n]*[^=~<>\n])=(?!=)", bare(source), re.MULTILINE)
    named = " ".join(re.sub(r"\[[^\]]*\]", "", each) for each in targets)
    return {*re.findall(r"(?<![\w.])[a-z_]+", named), *re.findall(r"table\.remove\((\w+)", bare(source))}


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_chunk_lists_the_locals_it_owns_reads_and_writes(chunk: str) -> None:
    source, named = CHUNKS[chunk], dict[str, dict[str, str]]()
    for access in ("Reads", "Writes"):
        lines = re.findall(rf"^-- {access}  (.*)$", source, re.MULTILINE)
        named[access] = {name: owner for line in lines for name, owner in re.findall(r"(\w+) \((\w+)\)", line)}
    owned = {name: owner for owner, each in CHUNKS.items() for name in declared(each, "")}
    assert declared(source, "") == {
        name for line in re.findall(r"^-- Owns  (.*)$", source, re.MULTILINE) for name in line.split()
    }
    words = set(re.findall(r"(?<![\w.])[a-z_]+\b", bare(source))) - declared(source, r"\s+")
    used = {name: owner for name, owner in owned.items() if name in words and owner != chunk}
    assert used == named["Reads"] | named["Writes"]
    assert not set(named["Reads"]) & assigned(source)


@verbs
def test_scripts_contain_no_literal_key(verb: str) -> None:
    literals = re.findall(r"'(lanes:[^']*)'", code(verb))
    assert set(literals) <= {"lanes:*"}


def test_the_prelude_and_python_name_the_same_keys() -> None:
    in_python = {
        name: value for name, value in vars(keys).items() if isinstance(value, str) and value.startswith("lanes:")
    }
    in_lua: dict[str, str] = {}
    for names, values in re.findall(r"^local ([A-Z, ]+) = ('lanes:.*)$", PRELUDE, re.MULTILINE):
        in_lua |= zip(names.split(", "), re.findall(r"'([^']+)'", values), strict=True)
    assert in_lua == in_python


def test_the_catalogue_lists_all_counts() -> None:
    written = {name for source in FILES.values() for name in re.findall(r"\bcount\('(\w+)'", source)}
    catalogue = re.search(r"#: hash: seq (.*?)\nCOUNTS", Path(keys.__file__).read_text(), re.DOTALL)
    assert catalogue
    named = set(re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", catalogue[1].partition("totals")[2]))
    assert written == named


def test_the_catalogue_lists_all_fields_of_a_message() -> None:
    catalogue = re.search(r"#: hash: (state.*?)\nMESSAGE", Path(keys.__file__).read_text(), re.DOTALL)
    assert catalogue
    named = set(re.sub(r"\([^)]*\)|#:", "", catalogue[1]).replace(" ", "").replace("\n", "").split(","))
    written: set[str] = set()
    for source in FILES.values():
        for arguments in re.findall(r"'HSET', MESSAGE \.\. id, (.*)\)$", source, re.MULTILINE):
            written |= set(re.findall(r"(?:^|, )'(\w+)', ", arguments))
        written |= set(re.findall(r"'HINCRBY', MESSAGE \.\. id, '(\w+)'", source))
    assert written == named


class Recorder:
    """A client that records the command and returns a given reply."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.sent: tuple[Argument, ...] = ()

    def execute_command(self, *command: Argument) -> Any:
        self.sent = command
        return self.reply


def run_first(store: Store, commands: list[tuple[Script, list[Argument]]]) -> Any:
    verb, command = commands[0]
    return verb.run(store.client, command)


CALLS: list[tuple[str, Any, Any, int, int]] = [
    # verb, call of the store, reply, KEYS sent, groups sent
    (
        "append",
        lambda s: s.append([NewMessage("1", "q", "x", ["a"]), NewMessage("2", "q", "x", [])], Guard("g", "5")),
        [2, 0, 0, 2, 0, 0, -1, [b"5", 0, 0, 0], 0],
        1,
        2,
    ),
    ("turn", lambda s: s.turn(["q", "r"], holder="h", lease_ms=1, room=1, settles=[("1", "5")]), [[], 0, 0, -1], 2, 1),
    ("renew", lambda s: s.renew([("1", "5"), ("2", "6")], 1), [], 0, 2),
    ("release", lambda s: s.release([("1", "5")], died=True), [], 0, 1),
    ("retry", lambda s: s.retry("1", "5", delay_ms=1, problem={}), 1, 0, 0),
    ("park", lambda s: s.park("1", "5", delay_ms=1), 1, 0, 0),
    ("bury", lambda s: s.bury("1", "5", {}), 1, 0, 0),
    (
        "commit",
        lambda s: s.commit(
            "1",
            "5",
            [
                *(Set("k", b"v"), Delete("k"), Move("k", "l"), SetTimer("o", "n", "2", "q", b"x")),
                *(CancelTimer("o", "n"), MoveTimer("o", "n", "2", "p", "q", b"x")),
            ],
        ),
        1,
        0,
        6,
    ),
    ("stage", lambda s: run_first(s, commit_commands("1", "5", [Delete("k")] * 65)), 1, 0, 64),
    ("finish", lambda s: s.finish("1"), 0, 0, 0),
    ("schedule", lambda s: s.schedule(NewMessage("1", "q", b"x", ["a"]), "o", "n", in_ms=1), 1, 0, 0),
    ("cancel", lambda s: s.cancel("o", "n"), 1, 0, 0),
    ("timers_of", lambda s: s.timers("o", "p"), [[b"", b""]], 0, 2),
    ("begin", lambda s: s.begin("1", "5", lease_ms=1, position="1", what="x"), [b"begun"], 0, 0),
    ("end", lambda s: s.end("1", "5", position="1", what="x", kind=Kind.DONE), 1, 0, 0),
    ("shield", lambda s: s.shield("1", "5", shielded=True), 1, 0, 0),
    (
        "advance",
        lambda s: s.advance("o", "n", known=b"", record=b"r", until_ms=1, messages=[NewMessage("1", "q", "x", ["a"])]),
        1,
        0,
        1,
    ),
    ("replay", lambda s: s.replay("1"), 1, 0, 0),
    ("pause", lambda s: s.pause("lane", "a"), 1, 0, 0),
    ("resume", lambda s: s.resume("group", "q", ["q.0", "q.1"]), 1, 2, 0),
    ("drop", lambda s: s.drop("1"), 1, 0, 0),
    ("purge", lambda s: s.purge("q"), 0, 1, 0),
    ("sweep", lambda s: s.sweep(1), [0, 0, -1, [b"5", 0, 0, 0], 0], 0, 0),
    ("look", lambda s: s.look(), [b"5", 0, 0, 0], 0, 0),
    ("lose", lambda s: s.lose(History("5", 2, 1, 1), History("6", 0, 0, 0)), [b"6", b"9 1 2 1 0 0"], 0, 0),
    ("acknowledge", lambda s: s.acknowledge_losses(), [b"9 1 2 1 0 0"], 0, 0),
    ("repair", lambda s: s.repair("0", 1), [b"0", 0], 0, 0),
    ("reconcile", lambda s: s.reconcile("h", ["1", "2"]), 0, 0, 2),
]


def test_every_verb_is_tested() -> None:
    assert sorted(call[0] for call in CALLS) == VERBS


@pytest.mark.parametrize(("verb", "call", "reply", "sent_keys", "groups"), CALLS, ids=[call[0] for call in CALLS])
def test_the_store_sends_the_arguments_of_the_header(
    verb: str, call: Any, reply: Any, sent_keys: int, groups: int
) -> None:
    recorder = Recorder(reply)
    call(Store(recorder))  # type: ignore[arg-type]
    evalsha, sha, numkeys, *rest = recorder.sent
    assert (evalsha, sha, numkeys) == ("EVALSHA", script(verb).sha, sent_keys)
    assert len(rest) == sent_keys + len(script(verb).fixed) + groups * len(script(verb).group)


@pytest.mark.parametrize(
    ("verb", "fixed", "group"),
    [
        ("renew", {}, []),
        ("renew", {"lease_ms": 1, "more": 2}, []),
        ("renew", {"lease": 1}, []),
        ("retry", {"fence": "1", "id": "1", "delay_ms": 1, "problem": ""}, []),  # wrong order
        ("renew", {"lease_ms": 1}, [("id",)]),
        ("renew", {"lease_ms": 1}, [("id", "fence"), ("id", "fence", "died")]),
        ("bury", {"id": "1", "fence": "1", "problem": ""}, [("id",)]),
    ],
)
def test_a_call_with_wrong_arguments_is_refused(
    verb: str, fixed: dict[str, Argument], group: Sequence[Sequence[Argument]]
) -> None:
    with pytest.raises(TypeError, match=rf"{verb}\.lua"):
        script(verb).command(group=group, **fixed)


def test_a_flushed_script_is_loaded_again(store: Store) -> None:
    store.client.script_flush()
    assert store.sweep(1).next_ms is None
    assert Script("sweep").sha == script("sweep").sha
