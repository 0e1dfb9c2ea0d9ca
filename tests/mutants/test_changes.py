"""The list of changes fits the code. `make mutants` makes them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mutants.__main__ import noticed_by, simulated_changes
from tests.mutants.changes import CHANGES, UNNOTICED, Change
from tests.support import ROOT


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_change_can_be_made(change: Change) -> None:
    assert (ROOT / change.file).read_text().count(change.old) == 1
    assert change.new != change.old


def test_there_are_enough_changes() -> None:
    assert Counter(change.file.rpartition(".")[2] for change in CHANGES) >= Counter(lua=27, py=20)
    assert len({change.name for change in CHANGES}) == len(CHANGES)


def test_each_change_was_noticed_by_a_test() -> None:
    assert set(noticed_by()) == {change.name for change in CHANGES}


def test_what_a_simulated_run_does_not_notice_is_explained_once() -> None:
    names = [name for names in UNNOTICED.values() for name in names]
    assert len(set(names)) == len(names)
    assert set(names) <= {change.name for change in simulated_changes()}
