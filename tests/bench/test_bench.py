"""The bench: its arithmetic, and most rows once with a few hundred messages.

Asserts nothing about speed: such a test fails on a busy machine.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.load.updates import make_update, make_updates, stamp
from bench.measure.figures import Goal, Result, Side, Spread, fullest, percentile, ratios, steady_rate
from bench.measure.harness import ROOT
from bench.measure.scale import UPDATE_BYTES
from bench.report import check, publish
from bench.report.table import document, number, table
from bench.rows import CORE, ROWS
from bench.systems.backlogs import lane_message

#: row -> number of its cases in a quick run. One run of the bench per dict: starting it takes as long as a row.
QUICK_RUNS: tuple[dict[str, int], ...] = (
    {"throughput": 1, "slow-chat": 3, "hot-lane": 1, "costs": 9, "recovery": 1},
    {"intake": 2, "latency": 2, "memory": 1, "timers": 4, "dedup": 1},
    {"calls": 2, "sessions": 1, "rates": 2, "conversations": 5, "stops": 7, "broadcast": 2},
)

#: They install the programs they compare with, or need many workers or a long time even for a quick run.
NOT_RUN = {
    "frameworks",
    "webhook",
    "recipe",
    "scaling",
    "peers",
    "pieces",
    "waits",
    "computes",
    "growth",
    "added-bots",
    "idle",
    "worker-memory",
    "script-times",
    "countdown",
}


def test_rows_are_run_or_listed_as_not_run() -> None:
    assert {row for rows in QUICK_RUNS for row in rows} | NOT_RUN == ROWS.keys()
    assert set(CORE) <= ROWS.keys()


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([3.0], Spread(3, 3, 3)),
        ([1.0, 9.0, 2.0], Spread(2, 1, 9)),
        ([4.0, 1.0, 2.0, 3.0], Spread(2.5, 1, 4)),
    ],
)
def test_spread(values: list[float], spread: Spread) -> None:
    assert Spread.of(values) == spread


@pytest.mark.parametrize(
    ("ours", "beside", "expected"),
    [
        ([10.0, 20.0], [5.0, 5.0], [2.0, 4.0]),
        ([1.0], [4.0], [0.25]),
        ([1.0], [0.0], [math.inf]),
    ],
)
def test_ratios_are_per_round(ours: list[float], beside: list[float], expected: list[float]) -> None:
    assert ratios(ours, beside) == expected


def test_one_slow_round_does_not_change_the_ratio() -> None:
    result = Result("row", "case", "tasks/s", Side("lanes", [400, 40, 400]), Side("stock", [100, 10, 100]))
    assert result.ratio == Spread(4, 4, 4)


@pytest.mark.parametrize(
    ("moments", "most"),
    [([], 0), ([5], 1), ([0, 9, 10], 2), ([0, 9, 9.9, 20, 21, 22, 29.9, 30], 4), ([3, 3, 3], 3)],
)
def test_fullest_window(moments: list[float], most: int) -> None:
    assert fullest(moments, window=10) == most


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([5.0], 99, 5.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([float(value) for value in range(1, 101)], 99, 99.0),
        ([float(value) for value in range(1, 1001)], 99, 990.0),
        ([1.0, 2.0], 0, 1.0),
    ],
)
def test_percentile(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


@pytest.mark.parametrize(
    ("samples", "rate"),
    [
        ([], None),
        ([(0, 100), (1, 90)], None),  # 95 % are not done yet
        ([(0, 100), (1, 90), (2, 48), (3, 5)], 85 / 2),  # the start-up is excluded
        ([(0, 100), (5, 80), (6, 0)], 80 / 1),  # from the first sample past 10 % to the first past 95 %
        ([(0, 60), (1, 4)], 56 / 1),  # work began before the first sample
    ],
)
def test_steady_rate(samples: list[tuple[float, int]], rate: float | None) -> None:
    assert steady_rate(samples, total=100) == rate


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Spread.of([]), "at least one value"),
        (lambda: percentile([], 50), "at least one value"),
        (lambda: ratios([1.0], [1.0, 2.0]), "1 rounds"),
        (lambda: steady_rate([(0, 100), (1, 0)], total=100), "too few"),
        (lambda: Result("r", "c", "u", Side("s", [1.0]), goal=Goal("ratio", "at least", 1)).verdict, "compare"),
    ],
)
def test_invalid_input_raises(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("goal", "text", "verdict"),
    [
        (Goal("value", "at least", 3_000), "≥ 3,000", "met"),
        (Goal("value", "at least", 3_001), "≥ 3,001", "missed"),
        (Goal("value", "at most", 3_000), "≤ 3,000", "met"),
        (Goal("ratio", "at least", 2), "≥ 2 ×", "met"),
        (Goal("ratio", "at most", 1.5), "≤ 1.5 ×", "missed"),
        (None, "", ""),
    ],
)
def test_goal_verdict(goal: Goal | None, text: str, verdict: str) -> None:
    result = Result("row", "case", "updates/s", Side("lanes", [3_000.0]), Side("stock", [1_500.0]), goal)
    assert (str(goal or ""), result.verdict) == (text, verdict)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.123, "0.12"), (9.876, "9.88"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_number_format(value: float, shown: str) -> None:
    assert number(value) == shown


def test_table() -> None:
    alone = Result("hot lane", "one", "updates/s", Side("lanes", [500.0]), goal=Goal("value", "at least", 400))
    beside = Result("bots", "two", "updates/s", Side("lanes", [500.0]), Side("polling", [250.0]))
    head, rule, *lines = table([alone, beside]).splitlines()
    assert len({len(line) for line in (head, rule, *lines)}) == 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["hot lane: one", "500 updates/s (500 – 500)", "–", "–", "≥ 400", "met"]
    assert cells[1][2:4] == ["polling: 250 updates/s (250 – 250)", "2.00 × (2.00 – 2.00)"]


def test_document_has_every_round() -> None:
    result = Result("row", "case", "ms", Side("lanes", [1.0, 2.0, 3.0], "so"), Side("stock", [2.0, 2.0, 2.0]))
    [entry] = document([result])["results"]
    assert entry["beside"]["name"] == "stock"
    assert entry["lanes"] == {"name": "lanes", "how": "so", "rounds": [1, 2, 3], "median": 2, "least": 1, "most": 3}
    assert entry["ratio"] == {"median": 1, "least": 0.5, "most": 1.5}
    assert entry["goal"] is None


def test_updates_have_equal_length_and_cycle_through_chats() -> None:
    updates = list(make_updates(1_000, chats=500))
    assert {len(orjson.dumps(update)) for update in updates} == {UPDATE_BYTES}
    assert len({update["message"]["chat"]["id"] for update in updates[100:600]}) == 500
    assert [update["update_id"] for update in updates] == list(range(1, 1_001))


def test_stamp_changes_only_the_time() -> None:
    body = orjson.dumps(make_update(7, 1001))
    stamped = orjson.loads(stamp(body, 12.5))
    assert float(stamped["answered_at"]) == 12.5
    assert len(stamp(body, 12.5)) == len(body)
    assert {**stamped, "answered_at": None} == {**make_update(7, 1001), "answered_at": None}


def test_lane_message_has_the_lane_of_its_chat() -> None:
    message = lane_message(make_update(7, 1001))
    assert (message.id, list(message.lanes), message.once) == ("1:7", ["chat:1001"], ("1", 7))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("rows", QUICK_RUNS, ids=lambda rows: next(iter(rows)))
def test_quick_run(rows: dict[str, int], tmp_path: Path) -> None:
    # When the bench runs some rows with a few hundred messages and two queues
    written = tmp_path / "bench.json"
    wanted = [text for row in rows for text in ("--only", row)]
    command = [sys.executable, "-m", "bench", "--quick", *wanted, "--json", str(written)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, "BENCH_QUEUES": "2"})
    assert ran.returncode == 0, ran.stderr
    # Then every case of each row is in the table and in the JSON, with a figure for each side
    written_json = orjson.loads(written.read_bytes())
    assert len(written_json["results"]) == sum(rows.values())
    for result in written_json["results"]:
        assert f"{result['row']}: {result['case']}" in ran.stdout
        for side in filter(None, (result["lanes"], result["beside"])):
            assert len(side["rounds"]) == 1
            # A run that is stopped between two of its effects has none after the stop
            assert side["median"] > 0 or (side["median"] == 0 and result["case"].startswith("stop to the last effect"))
        assert (result["ratio"] is None) == (result["beside"] is None)
    # And both name the command, the JSON also the machine
    assert written_json["command"] in ran.stdout
    assert {"processor", "python", "packages", "server", "fsync_ms", "load"} <= written_json["machine"].keys()


LANES = "packages/celery-lanes/celery_lanes"

#: A product with parts that are measured, and one that is not.
PRODUCT = {
    f"{LANES}/turn.py": "def turn():\n    return 1\n",
    f"{LANES}/lua/turn.lua": "return 1\n",
    "chatlanes/bot.py": "A = 1\n",
    "packages/chatlanes-sandbox/chatlanes_sandbox/page.py": "A = 1\n",
}


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A repository with PRODUCT, committed on 1 February, and a figure that was measured on it on 3 January."""
    for name, text in PRODUCT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    measured = {"command": "python -m bench --all", "commit": "c0ffee", "at": "2026-01-03T00:00:00Z"}
    measured["code"] = check.digest(tmp_path)
    (tmp_path / publish.FIGURES).mkdir(parents=True)
    (tmp_path / publish.FIGURES / "bench.json").write_bytes(orjson.dumps([{"row": "costs", "measured": measured}]))
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    dated = {**os.environ, "GIT_COMMITTER_DATE": "2026-02-01T00:00:00Z"}
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "the product"]):
        subprocess.run([*git, *command], cwd=tmp_path, env=dated, check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "is_other_code"),
    [
        (f"{LANES}/turn.py", '"""A docstring."""\n# a comment\ndef turn():\n    "Another."\n    return (1)\n', False),
        (f"{LANES}/turn.py", "def turn():\n    return 2\n", True),
        (f"{LANES}/turn.py", "def turn() -> int:\n    return 1\n", True),
        (f"{LANES}/lua/turn.lua", "-- a comment\n\n  return 1\n", False),
        (f"{LANES}/lua/turn.lua", "return 2\n", True),
        (f"{LANES}/new.py", "", True),
        ("chatlanes/bot.py", "A = 2\n", True),
        ("packages/chatlanes-sandbox/chatlanes_sandbox/page.py", "A = 2\n", False),
    ],
)
def test_figures_are_stale_when_the_measured_code_is_other_code(
    product: Path, name: str, text: str, is_other_code: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (product / name).write_text(text)
    with pytest.raises(SystemExit) if is_other_code else nullcontext():
        check.main([], product)
    said = capsys.readouterr().err
    assert ("  make bench-all at c0ffee on 2026-01-03: costs\n" in said) == is_other_code
    assert ("python -m bench report --anew .data/bench/all.json" in said) == is_other_code


@pytest.mark.parametrize(("days", "fails"), [(28, True), (29, False)])
def test_grace_counts_from_the_measurement_to_the_last_change(
    product: Path, days: int, fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (product / "packages/celery-lanes/celery_lanes/turn.py").write_text("")
    with pytest.raises(SystemExit) if fails else nullcontext():
        check.main([f"--grace-days={days}"], product)
    assert ("becomes one when the code is changed after 2026-02-01" in capsys.readouterr().err) != fails


def test_report_uses_the_newest_figures(tmp_path: Path) -> None:
    # Given a page with a table for one row, and two runs that measured its case; the first also measured another case
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- bench: costs: commands -->\nold\n<!-- /bench -->\nafter\n")
    older = Result("costs", "commands, for an update", "commands", Side("lanes", [3.0]), Side("stock", [2.0]))
    newer = Result("costs", "commands, for an update", "commands", Side("lanes", [1.0]), Side("stock", [2.0]))
    other = Result("costs", "the poller, for an update", "ms", Side("lanes", [7.0]), Side("stock", [2.0]))
    machine = {"processors": 2, "processor": "P", "system": "S", "python": "3", "packages": {}, "server": "V"}
    files = []
    for place, results in enumerate(([older, other], [newer])):
        about = {
            "command": f"python -m bench --rounds {place}",
            "commit": "c0ffee",
            "code": "d1635",
            "at": "2026-01-02T03:04:05Z",
            "seconds": 1,
        }
        measured = document(results, **about, machine={**machine, "load": place, "fsync_ms": 1})
        files.append(tmp_path / f"{place}.json")
        files[-1].write_bytes(orjson.dumps(measured))
    # When they are reported, and again without new files
    publish.main([str(file) for file in files], tmp_path)
    first = page.read_text()
    publish.main([], tmp_path)
    # Then the table has the newer figure and its command, the text around it is unchanged, and the second report too
    assert page.read_text() == first
    assert first.startswith("before\n<!-- bench: costs: commands -->\n| what |")
    assert first.endswith("<!-- /bench -->\nafter\n")
    assert "1.00 commands" in first
    assert "0.50 × (0.50 – 0.50)" in first
    assert '`make bench ARGS="--rounds 1"` at c0ffee on 2026-01-02' in first
    assert not any(text in first for text in ("3.00 commands", "the poller", "old"))
    # And the picture shows both cases and the goal
    drawn = (tmp_path / "docs/figures/costs.svg").read_text()
    assert all(f">{text}</text>" in drawn for text in ("commands", "the poller", "0.50", "3.50", "goal 0.5"))


def test_pages_show_the_published_figures() -> None:
    entries = orjson.loads((ROOT / publish.FIGURES / "bench.json").read_bytes())
    for name in publish.PAGES:
        page = (ROOT / name).read_text()
        assert publish.filled(page, entries) == page, f"python -m bench report writes {name}"
    assert (ROOT / "README.md").read_text().count("\n* **") == len(publish.HEADLINES)
