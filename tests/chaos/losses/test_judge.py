"""The judge of a run with one blow finds each broken promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from celery_lanes.protocol.verbs import History
from chaos.losses.judge import Outcome, wrong
from chaos.losses.run import losses

QUIET: dict[str, tuple[str, ...]] = dict.fromkeys(["poller", "standby", "threads", "prefork"], ())
ALL = {**dict.fromkeys(QUIET, ("Redis LOST data",)), "standby": ()}

#: A server that came back with all it had.
WHOLE = Outcome(
    before=History("a", 20, 10, 10),
    after=History("a", 20, 10, 10),
    confirmed=20,
    never=frozenset(),
    losses=[],
    lines=QUIET,
    checked=0,
)
#: One that came back without the last five updates.
OLDER = replace(
    WHOLE, after=History("a", 15, 10, 5), never=frozenset({18, 20}), losses=[(16, 20)], lines=ALL, checked=1
)


def test_what_is_promised() -> None:
    assert wrong(WHOLE, may_lose=False) == []
    assert wrong(OLDER, may_lose=True) == []
    # And an empty server, where all updates are in the range
    empty = replace(OLDER, after=History("b", 0, 0, 0), losses=[(1, 20)])
    assert wrong(empty, may_lose=True) == []
    # And one where only settlements are missing
    again = replace(WHOLE, after=History("a", 20, 8, 12), losses=[(21, 20)], lines=ALL, checked=1)
    assert wrong(again, may_lose=False) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"never": frozenset({18})}, "1 updates were lost that may not be: [18]"),
        ({"lines": ALL}, "report a loss, and there was none"),
        ({"losses": [(16, 20)]}, "report a loss, and there was none"),
    ],
)
def test_nothing_may_be_lost(changes: dict[str, Any], problem: str) -> None:
    [found] = wrong(replace(WHOLE, **changes), may_lose=False)
    assert problem in found


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"never": frozenset({12, 18})}, "1 updates were lost that may not be: [12]"),
        ({"confirmed": 19}, "1 updates were lost that may not be: [20]"),
        ({"lines": {**ALL, "poller": ()}}, "no poller has reported the loss"),
        ({"lines": {**ALL, "threads": ()}}, "['threads'] have not reported the loss"),
        ({"lines": {**ALL, "poller": ("a", "b")}}, "['poller'] have reported the loss more than once"),
        ({"losses": []}, "expected one recorded loss"),
        ({"losses": [(16, 18), (19, 20)]}, "expected one recorded loss"),
        ({"checked": 0}, "expected one recorded loss"),
        ({"losses": [(11, 20)]}, "updates 16 to 20 are gone, but 11 to 20 are reported"),
        ({"losses": [(16, 25)]}, "updates 16 to 20 are gone, but 16 to 25 are reported"),
        ({"losses": [(16, 19)]}, "1 lost updates are not among those that are reported: [20]"),
    ],
)
def test_what_may_be_lost_is_reported_once(changes: dict[str, Any], problem: str) -> None:
    assert problem in "; ".join(wrong(replace(OLDER, **changes), may_lose=True))


def test_a_blow_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert losses(["flood of water"], None) == 2
    assert "no blow is named flood of water; there are: slow disk, full disk" in capsys.readouterr().out
