"""The units for systemd: which ends of a process are not restarted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.deployment.promql import DEPLOY
from tests.support.pipeline import TOKEN

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("settings", "is_restarted"), [({"POLL_GIVE_UP_AFTER": "0.1"}, True), ({"ORDER_BY": "nothing"}, False)]
)
def test_a_poller_that_gave_up_is_restarted_and_one_with_a_wrong_setting_is_not(
    redis_url: str, tmp_path: Path, settings: dict[str, str], is_restarted: bool
) -> None:
    environment = {**os.environ, "BOT_TOKEN": TOKEN, "BOT_API_URL": NOBODY, "REDIS_URL": redis_url, **settings}
    command = [sys.executable, "-m", "chatlanes", "poller"]
    code = subprocess.run(command, cwd=tmp_path, env=environment, timeout=60, check=False).returncode
    assert code != 0
    assert (code not in final_codes("chatlanes-poller.service")) == is_restarted


def final_codes(unit: str) -> set[int]:
    """The exit codes after which systemd does not start the process again."""
    text = (DEPLOY / unit).read_text()
    assert "\nRestart=always\n" in text
    return {int(code) for line in re.findall(r"(?m)^RestartPreventExitStatus=(.*)$", text) for code in line.split()}
