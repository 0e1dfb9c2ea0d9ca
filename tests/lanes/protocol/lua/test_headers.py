"""Compares the header of each script with the names that the script binds, and with the arguments the store sends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import celery_lanes.protocol
from celery_lanes.protocol import (
    Argument,
    CancelTimer,
    Command,
    Delete,
    Element,
    Guard,
    Kind,
    Leaving,
    Move,
    MoveTimer,
    NewMessage,
    Set,
    SetMode,
    SetNote,
    SetTimer,
    Store,
    keys,
    script,
)
from celery_lanes.protocol.scripts import (
    Definition,
    Script,
    assembled,
    built_later,
    chunks,
    definitions,
    names_in,
    reached,
    with_values,
)
from celery_lanes.protocol.verbs import History, commit, finish

LUA = Path(celery_lanes.protocol.__file__).parent / "lua"
FILES = {path.stem: path.read_text() for path in LUA.rglob("*.lua")}
#: The verbs. Shared chunks, which are prepended to them, are in a folder of their own.
SOURCES = {path.stem: FILES[path.stem] for path in LUA.glob("*.lua")}
VERBS = sorted(SOURCES)
PRELUDE = FILES["prelude"]

#: The maximum length of a file.
MOST_LINES = 245

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
    found = [line.split()[1] for line in opening]
    assert found == [each for each in (f"{verb}:", "KEYS", "ARGV", "Returns") if each in found]
    assert header(verb)[0] == opening[0]
    assert "Returns" in found


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
    lines = [line for line in header(verb) if line.startswith("-- KEYS")]
    assert len(lines) == bool(re.search(r"\bKEYS\b", code(verb)))


@pytest.mark.parametrize("name", FILES)
def test_files_are_short(name: str) -> None:
    assert len(FILES[name].splitlines()) <= MOST_LINES


def test_a_chunk_follows_the_chunks_that_it_needs() -> None:
    assert chunks("turn") == ["ready", "places", "ending"]


def test_the_scripts_of_an_update_are_in_few_files() -> None:
    verbs = ["append", "turn", "begin", "end", "commit"]
    assert len({*verbs, "prelude", *(chunk for verb in verbs for chunk in chunks(verb))}) <= 14


def test_a_script_has_the_definitions_that_its_verb_reaches() -> None:
    # Given definitions of several forms, with comments, and names in texts and comments
    found = definitions("prelude") + definitions("timer_packing")
    # When a verb names some of them
    sought = "local x = group_of(FIRST, put_off) -- count 'split'"
    names = [name for each in reached(sought, found) for name in each.defines]
    # Then these and those that they use are reached, in their order
    assert set(names) == {"group_of", "RAW", "VERSION", "FIRST", "CODES", "put_off", "step", "step.writers"}
    assert "step.writers[order] = write" in next(each.text for each in found if "put_off" in each.defines)


@verbs
def test_every_name_of_a_chunk_is_defined_in_the_scripts_that_use_it(verb: str) -> None:
    needed = [each for chunk in ["prelude", *chunks(verb)] for each in definitions(chunk)]
    sent = [each for each in needed if "\n" + re.split(r"[(=]", each.text)[0] in "\n" + assembled(verb)]
    used = names_in(assembled(verb))
    assert [each.defines for each in needed if each.defines & used] == [each.defines for each in sent]
    owners = [name for chunk in ["prelude", *CHUNKS] for each in definitions(chunk) for name in each.defines]
    assert len(owners) == len(set(owners))


def test_seldom_functions_are_built_by_the_first_call_of_one(client: Redis) -> None:
    # Given a function of a verb that is seldom called, and one that only it calls
    helper = Definition({"helper"}, set(), "local function helper(x) return x end\n")
    often = Definition({"often"}, set(), "local function often() return 5 end\n")
    verb = """local wanted = ARGV[1]
local function rare(n) return helper(n) + often() end -- rare
if wanted == 'rare' then return rare(1) + rare(2) end
return often()
"""
    # Then a script runs the same with and without it
    source = built_later({"rare"}, [helper, often], verb)
    assert [client.eval(source, 0, wanted) for wanted in ("rare", "")] == [13, 5]
    # And both are in the function that the first call runs, after the names that they use
    before, within, after = re.split(r"function seldom\(\)\n|(?<=return built\n)end\n", source)
    assert "often()" in before
    assert "wanted" in before
    assert "helper" not in before + after
    assert within.startswith(helper.text)
    assert "local function rare(n)" in within


@verbs
def test_seldom_functions_are_defined_and_their_names_have_one_meaning(verb: str) -> None:
    names = {name for line in re.findall(r"^-- Seldom  (.*)$", SOURCES[verb], re.MULTILINE) for name in line.split()}
    source = bare(assembled(verb))
    assert names <= {*re.findall(r"^local function (\w+)\(", source.partition("function seldom()")[2], re.MULTILINE)}
    others = re.findall(
        r"^ *local (?!function )([\w, ]+)|function \w*\((.*?)\)|(?<!seldom\(\))[.:](\w+)", source, re.MULTILINE
    )
    assert not {name for found in others for name in re.findall(r"\w+", ",".join(found))} & names


def test_a_script_has_the_values_of_its_constants() -> None:
    # Given constants in one line and with a comment, and their names also in texts, comments and longer names
    source = """local KEY, MOST = 'lanes:key:', 10
local EDGE = '\\30[KEY]' -- KEY
local LAST_KEY = 2 ^ MOST
return KEY .. 'KEY' .. EDGE .. MOST + LAST_KEY -- KEY
"""
    # Then each name is its value, unless it is computed
    assert with_values(source) == (
        "local LAST_KEY = 2 ^ 10\nreturn 'lanes:key:' .. 'KEY' .. '\\30[KEY]' .. 10 + LAST_KEY -- KEY\n"
    )


@verbs
def test_no_constant_of_a_verb_has_two_meanings(verb: str) -> None:
    source = bare(assembled(verb))
    constants = [
        name for names in re.findall(r"^local ([A-Z_, ]+) =", source, re.MULTILINE) for name in names.split(", ")
    ]
    others = re.findall(r"^ +local ([\w, ]+)|\w[.:](\w+)", source, re.MULTILINE)
    assert len(constants) == len(set(constants))
    assert not {name for names, field in others for name in [*names.split(", "), field]} & {*constants}


#: Lua refuses a function with more than 200 locals or 60 upvalues. This many can still be added to any script.
SPARE_LOCALS, SPARE_UPVALUES = 25, 20


def test_every_script_stays_below_the_limits_of_lua(client: Redis) -> None:
    spare = f"local {', '.join(f'spare{n}' for n in range(SPARE_LOCALS))}\n"
    for verb in VERBS:
        client.script_load(spare + script(verb).source)


@verbs
def test_no_function_has_too_many_upvalues(verb: str) -> None:
    """Every name at the top of a script that a function contains counts, also if it means something else there."""
    source = bare(script(verb).source)
    top = {
        name
        for function, names in re.findall(r"^local (?:function (\w+)|([\w, ]+))", source, re.MULTILINE)
        for name in [function, *re.findall(r"\w+", names)]
    }
    functions = re.findall(r"^local function [^\n]* end$|^local function .*?^end$", source, re.MULTILINE | re.DOTALL)
    assert functions or "function" not in source
    for function in functions:
        assert len(names_in(function) & top) <= 60 - SPARE_UPVALUES


CHUNKS = {path.stem: path.read_text() for path in (LUA / "lib").glob("*.lua") if path.stem not in ("prelude", "prefix")}


def bare(source: str) -> str:
    """The source without comments and string literals."""
    return re.sub(r"'[^']*'", "''", re.sub(r"--.*", "", source))


def assigned(source: str) -> set[str]:
    """Names that are assigned to, also to one of their fields."""
    targets = re.findall(r"^(?!\s*local )([^=~<>\n]*[^=~<>\n])=(?!=)", bare(source), re.MULTILINE)
    named = " ".join(re.sub(r"\[[^\]]*\]", "", each) for each in targets)
    return {*re.findall(r"(?<![\w.])[a-z_]+", named), *re.findall(r"table\.remove\((\w+)", bare(source))}


@pytest.mark.parametrize("chunk", ["prelude", *CHUNKS])
def test_what_a_chunk_changes_is_a_field_of_the_step(chunk: str) -> None:
    constants = {name for each in definitions(chunk) for name in each.defines if not name.startswith("step.")}
    assert not (constants - {"step"}) & assigned(FILES[chunk])


@verbs
def test_the_fields_of_a_step_are_declared_and_put_off_writes_are_done(verb: str) -> None:
    source = bare(script(verb).source)
    declared = {name for line in re.findall(r"^(step\..*?) = ", source, re.MULTILINE) for name in line.split(", ")}
    assert {name for name in names_in(source) if name.startswith("step.")} <= declared
    assert code(verb).count("finish()") == ("= put_off(" in source)


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


class Recorder(Store):
    """A store that records the last command and returns a given reply."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.sent: list[Argument] = []

    def ask(self, *commands: Command[Any], together: bool = False) -> list[Any]:
        self.sent = commands[-1].arguments
        return [self.reply] * len(commands)


CALLS: list[tuple[str, Any, Any, int, int]] = [
    # verb, call of the store, reply, KEYS sent, groups sent
    (
        "append",
        lambda s: s.append([NewMessage("1", "q", "x", ["a"]), NewMessage("2", "q", "x", [])], Guard("g", "5")),
        [2, 0, 0, 2, 0, 0, -1, [b"5", 0, 0, 0], 0, 0],
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
                *(CancelTimer("o", "n"), MoveTimer("o", "n", "2", "p", "q", b"x"), SetNote("a", "x"), SetMode("steer")),
            ],
        ),
        1,
        0,
        8,
    ),
    ("stage", lambda s: s.run(commit("1", "5", [Delete("k")] * 65)[0]), 1, 0, 64),
    ("finish", lambda s: s.run(finish("1")), 0, 0, 0),
    ("schedule", lambda s: s.schedule(NewMessage("1", "q", b"x", ["a"]), "o", "n", in_ms=1), 1, 0, 0),
    ("cancel", lambda s: s.cancel("o", "n"), 1, 0, 0),
    ("timers_of", lambda s: s.timers("o", "p"), [[b"", b""], 0], 0, 2),
    ("begin", lambda s: s.begin("1", "5", lease_ms=1, position="1", what="x"), [b"begun"], 0, 0),
    ("end", lambda s: s.end("1", "5", position="1", what="x", kind=Kind.DONE), 1, 0, 0),
    ("gather", lambda s: s.gather("m", "5", ["n", "o"]), 2, 0, 2),
    ("shield", lambda s: s.shield("1", "5", shielded=True), 1, 0, 0),
    ("close", lambda s: s.close_group("1", "5"), 1, 0, 0),
    ("take", lambda s: s.take("1", "5", known=0, place=1), [b"[]", b"", 0], 0, 0),
    ("leave", lambda s: s.leave("1", "5", kept=0), 1, 0, 0),
    (
        "advance",
        lambda s: s.advance("o", "n", known=b"", record=b"r", until_ms=1, messages=[NewMessage("1", "q", "x", ["a"])]),
        1,
        0,
        1,
    ),
    (
        "adopt",
        lambda s: s.adopt("l", [Element(b"x", NewMessage("1", "q", "x", ["a"]), ("o", "n"), 9)], first=-2, last=-1),
        [2],
        1,
        1,
    ),
    (
        "move_out",
        lambda s: s.move_out("l", [Leaving("1", b"x", b"e"), Leaving("2", b"x", b"e", ("o", "n"))]),
        [1, 0],
        1,
        2,
    ),
    ("replay", lambda s: s.replay("1"), 1, 0, 0),
    ("pause", lambda s: s.pause("lane", "a"), 1, 0, 0),
    ("resume", lambda s: s.resume("group", "q", ["q.0", "q.1"]), 1, 2, 0),
    ("drop", lambda s: s.drop("1"), 1, 0, 0),
    ("purge", lambda s: s.purge("q"), 0, 1, 0),
    ("sweep", lambda s: s.sweep(1), [0, 0, -1, [b"5", 0, 0, 0], 0, 0, 0], 0, 0),
    ("rights", lambda s: s.rights(), [b"MSET"], 0, 0),
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
    call(recorder)
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
        script(verb).command((), group, **fixed)


def test_a_flushed_script_is_loaded_again(store: Store) -> None:
    store.client.script_flush()
    assert store.sweep(1).next_ms is None
    assert Script("sweep").sha == script("sweep").sha


@pytest.mark.slow
def test_the_scripts_are_the_same_in_every_locale() -> None:
    program = "from celery_lanes.protocol.scripts import digest; print(digest())"
    locales = ({"PYTHONUTF8": "1"}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"})
    digests = [
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | each, stdout=subprocess.PIPE, check=True
        ).stdout
        for each in locales
    ]
    assert digests[0] == digests[1]
