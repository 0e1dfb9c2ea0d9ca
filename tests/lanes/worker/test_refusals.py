"""A run that Redis has refused is not settled: after a failover, the answer may be that of a replica that is behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from celery_lanes.embedded_server import start_server
from tests.support.lab import Lab


@pytest.mark.parametrize(("pool", "slots"), [("prefork", 2), ("threads", 2), ("solo", 1)])
@pytest.mark.parametrize("how", ["check", "call", "swallow"])
def test_a_message_runs_again_after_a_wrong_refusal(lab: Lab, tmp_path: Path, pool: str, slots: int, how: str) -> None:
    # Given a message whose first run asks a server that does not have its lease, and one behind it
    with start_server(tmp_path / "behind") as behind:
        lab.publish("first", ["a"], task="ask_elsewhere", url=behind.url, how=how)
        lab.publish("second", ["a"])
        # When a worker runs them
        lab.worker(pool, slots)
        lab.drained()
    # Then the first one runs again before the second one, and no attempt is counted
    events = [(event.what, event.id) for event in lab.history]
    assert events == [
        ("start", "first"),
        ("start", "first"),
        ("end", "first"),
        ("start", "second"),
        ("end", "second"),
    ]
    assert (lab.count("released"), lab.count("retried"), lab.count("buried")) == (1, 0, 0)
