"""Compares the header of each leader script with the names that the script binds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from celery_lanes.protocol import script
from chatlanes import poller

LUA = Path(poller.__file__).parent / "lua"
VERBS = sorted(path.stem for path in LUA.glob("*.lua") if path.stem != "prelude")


@pytest.mark.parametrize("verb", VERBS)
def test_header_parts_are_in_order(verb: str) -> None:
    lines = (LUA / f"{verb}.lua").read_text().splitlines()
    header = lines[: next(number for number, line in enumerate(lines) if not line.startswith("--"))]
    opening = [line for line in header if re.match(rf"-- ({verb}:|KEYS |ARGV |Returns )", line)]
    assert [line.split()[1] for line in opening] == [f"{verb}:", "KEYS", "ARGV", "Returns"]
    fixed = script(verb, "chatlanes.poller").fixed
    assert lines[len(header)] == f"local {', '.join(fixed)} = unpack(ARGV, 1, {len(fixed)})"
    assert "ARGV[" not in "\n".join(lines)
    assert not re.search(r"\b(redis\.call\('\w+', '|KEYS\[[2-9])", "\n".join(lines[len(header) :]))
