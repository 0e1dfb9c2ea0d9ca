"""Each blow, with real servers and processes: what is promised holds. Half a minute each."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.losses.blows import BLOWS
from chaos.losses.run import losses

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.mark.parametrize("name", BLOWS)
def test_a_blow_costs_what_it_may(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    if BLOWS[name].obstacle:
        pytest.skip(BLOWS[name].obstacle)

    code = losses([name], tmp_path)

    assert code == 0, capsys.readouterr().out
