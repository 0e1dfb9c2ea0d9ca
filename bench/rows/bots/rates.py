"""Rates: four processes send as much as RATE_PER_BOT, RATE_PER_CHAT and RATE_PER_GROUP permit, for 10 s or longer.

The granted slots are counted by Redis' clock: the used share of the limit, and the fullest 10 s. The limits are higher
than Telegram's, so that 10 s contain enough slots. A hot chat has its own process, whose handlers ask for more than the
chat's limit while the other processes share the bot's limit.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain

import orjson

from bench.load.limited_calls import BEGUN, RatePlan
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side, fullest
from bench.measure.harness import Harness

THREADS = 12
WINDOW_S = 10.0

Grants = list[tuple[int, int]]  # (µs, chat), sorted by time

#: % of the limit
USED = Goal("value", "at least", 97)
FULLEST = Goal("value", "at most", 101)


@dataclass(frozen=True)
class Case:
    """`limit` in messages/s, of the bot (`of` is None) or of each chat in `of`."""

    name: str
    limit: float
    rates: dict[str, float]
    chats: Callable[[int], list[int]]
    of: frozenset[int] | None = None


def _own(process: int) -> list[int]:
    return [100 * process + number for number in range(1, THREADS + 1)]


GROUPS = (-1, -2, -3)
CASES = (
    Case("the bot, 500/s", 500, {"per_bot": 500}, _own),
    Case("each of 3 chats, 50/s", 50, {"per_chat": 50}, lambda _: [1, 2, 3], frozenset((1, 2, 3))),
    Case("each of 3 groups, 3,000/min", 50, {"per_group": 3000}, lambda _: list(GROUPS), frozenset(GROUPS)),
    Case(
        "the bot, 300/s, beside a hot chat, 20/s",
        300,
        {"per_bot": 300, "per_chat": 20},
        lambda n: _own(n) if n else [1],
    ),
)


def run(harness: Harness) -> list[Result]:
    return [line for case in CASES[: harness.scale.rates_cases] for line in _measure(harness, case)]


def _measure(harness: Harness, case: Case) -> list[Result]:
    used, most = [], []
    for _ in range(harness.scale.rates_rounds):
        grants = _grants(harness, case)
        lines = _lines(grants, case.of)
        span_s = [(line[-1] - line[0]) / 1_000_000 for line in lines]
        used.append(min(100 * (len(line) - 1) / s / case.limit for line, s in zip(lines, span_s, strict=True)))
        most.append(max(100 * fullest(line, WINDOW_S * 1_000_000) / (case.limit * WINDOW_S) for line in lines))
        harness.report(f"rates, {case.name}: {used[-1]:.1f} %, fullest {WINDOW_S:g} s {most[-1]:.1f} %")
    # A run shorter than the window says nothing about the fullest window.
    goal = FULLEST if harness.scale.rates_s > WINDOW_S else None
    return [
        Result("rates", f"{case.name}: used", "%", Side("lanes", used), goal=USED),
        Result("rates", f"{case.name}: fullest {WINDOW_S:g} s", "%", Side("lanes", most), goal=goal),
    ]


def _lines(grants: Grants, of: frozenset[int] | None) -> list[list[int]]:
    if of is None:
        return [[at for at, _ in grants]]
    lines: dict[int, list[int]] = defaultdict(list)
    for at, chat in grants:
        lines[chat].append(at)
    assert set(lines) == of
    return list(lines.values())


def _grants(harness: Harness, case: Case) -> Grants:
    """The slots granted while all processes were asking."""
    files = [harness.directory / f"grants-{process}" for process in range(harness.scale.rates_processes)]
    with harness.server("rates") as url:
        with ExitStack() as stack:
            plans = [RatePlan(url, str(file), case.chats(n), THREADS, rates=case.rates) for n, file in enumerate(files)]
            children = [
                stack.enter_context(harness.child(f"rates-{process}", "bench.load.limited_calls", plan.text()))
                for process, plan in enumerate(plans)
            ]
            until(
                lambda: all(child.has_printed(BEGUN) for child in children), children, "every process was given a slot"
            )
            time.sleep(harness.scale.rates_s)
        given = [sorted(map(tuple, orjson.loads(file.read_bytes()))) for file in files]
    begun, ended = max(each[0][0] for each in given), min(each[-1][0] for each in given)
    return [grant for grant in sorted(chain.from_iterable(given)) if begun <= grant[0] <= ended]
