"""An upgrade from an older release whose messages are waiting, running, delayed or buried: this version runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from celery_lanes.protocol import Store
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.older_release import BOT, BURIED, DELAYED, FOLDER, LATER, RUNNING, SETTLED, restore
from tests.support.pipeline import BOT_ID, message


@pytest.mark.parametrize("release", sorted(FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_messages_of_an_older_release_run_to_their_end(make_pipeline: MakePipeline, release: Path) -> None:
    # Given the state that the older release left in Redis when its worker was killed
    pipeline = make_pipeline(BOT=BOT, LEASE_SECONDS=1)
    kept = json.loads(release.read_text())
    restore(pipeline.redis, kept["redis"])
    pipeline.lanes = {int(update): tuple(lanes) for update, lanes in kept["lanes"].items()}
    settled_before = [update for update in pipeline.lanes if pipeline.state_of(update) is None]
    # When this poller and worker start, and Telegram sends one update again and a new one for all chats but one
    again = {**message(1, SETTLED, do="counts:1"), "update_id": settled_before[0]}
    pipeline.simulator.push(again)
    chats = (RUNNING, DELAYED, LATER)
    new = [{**message(3, chat, do="counts:1"), "update_id": 1000 + chat} for chat in (*chats, SETTLED)]
    pipeline.push(*new)
    pipeline.open("a")
    pipeline.poller()
    worker = pipeline.worker("threads", 8)
    pipeline.drained()
    # Then everything runs in order, and the repeated update is dropped
    assert pipeline.simulator.answers() == {**{chat: [1, 2, 3] for chat in chats}, SETTLED: [3]}
    assert pipeline.count("seen") == 1
    # And no call of the old worker is repeated, and sessions keep their values
    texts = [call["params"].get("text") for call in pipeline.simulator.calls("sendMessage")]
    assert "once" not in texts
    assert [pipeline.session(chat) for chat in (SETTLED, RUNNING)] == [{"n": 2}, {"n": 2}]
    # And the buried update has its error and can be replayed: it fails again
    [buried] = pipeline.dead()
    assert pipeline.lanes[int(buried.removeprefix(f"{BOT_ID}:"))] == (f"chat {BURIED}",)
    assert [problem["type"] for problem in pipeline.problems(buried)] == ["RefusedError"]
    assert Store(pipeline.redis).replay(buried)
    pipeline.drained()
    assert pipeline.dead() == [buried]
    worker.stop()
