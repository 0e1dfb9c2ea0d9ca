"""A reader who follows one update opens a bounded number of files."""

from __future__ import annotations

import pytest

from bench.passes import MOST_LUA, MOST_PYTHON, measure


@pytest.mark.slow
def test_one_update_passes_a_bounded_number_of_files() -> None:
    passed = measure()
    # Neither process is missed
    assert "chatlanes/poller/loop.py" in passed.poller
    assert "chatlanes/tasks/update.py" in passed.worker
    # And the limits hold
    assert len(passed.python) <= MOST_PYTHON, sorted(passed.python)
    assert len(passed.lua) <= MOST_LUA, sorted(passed.lua)
