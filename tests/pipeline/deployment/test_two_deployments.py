"""Two deployments of different bots on one database: the second refuses to start if they would share queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_lanes.embedded_server import free_port
from chatlanes_sandbox.simulator import Simulator, start
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.monitoring.test_command import command_output
from tests.support.pipeline import BOT_ID, READY, Pipeline, message
from tests.support.process import Process
from tests.support.waiting import until

OTHER_ID = 7890
OTHER_TOKEN = f"{OTHER_ID}:SECRET-part_of-the_OTHER"


@pytest.fixture(scope="module")
def other_telegram() -> Iterator[Simulator]:
    with start(OTHER_TOKEN) as simulator:
        yield simulator


@pytest.fixture
def other(other_telegram: Simulator) -> dict[str, object]:
    """The settings of a deployment with another bot."""
    other_telegram.reset()
    return {"BOT_TOKEN": OTHER_TOKEN, "BOT_API_URL": other_telegram.url}


def assert_refused(process: Process, bot: int) -> None:
    assert process.exit_code() == 1
    assert f"this database is in use by another deployment, of bot {bot} (" in process.log
    for remedy in ("REDIS_URL", "BOTS, docs/many_bots.md", "stop the other one"):
        assert remedy in process.log


def test_the_second_deployment_refuses_to_start(pipeline: Pipeline, other: dict[str, object]) -> None:
    # Given a deployment of one bot
    poller, worker = pipeline.poller(), pipeline.worker("threads", 4)
    poller.tells("leading")
    # When a second one with another bot is started on the same database
    refused = [
        pipeline.poller(**other),
        pipeline.worker("threads", 4, is_awaited=False, **other),
        pipeline.worker("prefork", 1, is_awaited=False, **other),
        pipeline.receiver(free_port(), is_awaited=False, **other),
    ]
    # Then each of its processes names the first one and the remedies
    for process in refused:
        assert_refused(process, BOT_ID)
    # And the first deployment continues, and its processes can be restarted
    worker.stop()
    pipeline.worker("threads", 4)
    pipeline.push(*(message(1, chat) for chat in range(1, 21)))
    pipeline.drained()
    assert pipeline.count("parked") == 0
    assert "WRONG" not in command_output(pipeline, "check")


def test_one_of_two_deployments_that_start_together_is_whole(pipeline: Pipeline, other: dict[str, object]) -> None:
    # When the pollers and the workers of two deployments are started at once on an empty database
    ours, theirs = (
        [pipeline.poller(**settings), pipeline.worker("threads", 1, is_awaited=False, **settings)]
        for settings in ({}, other)
    )
    # Then one deployment is refused, both processes of it
    until(lambda: sum(process.is_running() for process in (*ours, *theirs)) <= 2)
    refused, bot = (theirs, BOT_ID) if ours[0].is_running() else (ours, OTHER_ID)
    for process in refused:
        assert_refused(process, bot)
    # And the other one runs, both processes of it
    poller, worker = ours if refused is theirs else theirs
    poller.tells("leading")
    worker.tells(READY)


def test_another_bot_may_take_over_a_database(pipeline: Pipeline, other: dict[str, object]) -> None:
    # Given a deployment whose poller was stopped and whose worker was killed
    poller, worker = pipeline.poller(), pipeline.worker("threads", 4)
    poller.tells("leading")
    poller.stop()
    worker.kill_all()
    # When another bot is started on its database
    worker = pipeline.worker("threads", 4, **other)
    # Then it waits until the killed worker counts as gone, and starts
    assert "this database is in use" not in worker.log
    # And now the first bot is refused
    assert_refused(pipeline.poller(), OTHER_ID)


def test_deployments_that_share_a_bot_do_not_conflict(
    make_pipeline: MakePipeline, other: dict[str, object], tmp_path: Path
) -> None:
    # Given a deployment with a single bot
    pipeline = make_pipeline()
    old_poller, old_worker = pipeline.poller(), pipeline.worker("threads", 4)
    old_poller.tells("leading")
    # When it becomes one of two bots by a rolling restart, workers first, and an old worker is restarted meanwhile
    file = tmp_path / "bots.toml"
    file.write_text(
        f'[one]\ntoken_env = "BOT_TOKEN"\n[two]\ntoken_env = "OTHER_TOKEN"\nbot_api_url = "{other["BOT_API_URL"]}"\n'
    )
    many = {"BOTS": file, "OTHER_TOKEN": OTHER_TOKEN}
    worker = pipeline.worker("threads", 4, **many)
    old_worker.stop()
    old_worker = pipeline.worker("threads", 4)
    old_poller.stop()
    poller = pipeline.poller(**many)
    until(lambda: poller.log.count("leading") == 2)
    old_worker.stop()
    # Then no process is refused
    assert worker.is_running()
    # But a third bot without BOTS is refused, because these workers would be handed its updates
    third = {**other, "BOT_TOKEN": f"555{OTHER_TOKEN}"}
    refused = pipeline.worker("threads", 1, is_awaited=False, **third)
    assert refused.exit_code() == 1
    assert f"of bot {OTHER_ID}, {BOT_ID} (" in refused.log


def test_deployments_of_named_bots_have_separate_queues(
    make_pipeline: MakePipeline, other: dict[str, object], tmp_path: Path
) -> None:
    # Given two deployments with BOTS and no common bot
    pipeline = make_pipeline()
    for name, variable in (("one", "BOT_TOKEN"), ("two", "OTHER_TOKEN")):
        (tmp_path / f"{name}.toml").write_text(f'[{name}]\ntoken_env = "{variable}"\n')
    one = {"BOTS": tmp_path / "one.toml"}
    two = {
        "BOTS": tmp_path / "two.toml",
        "OTHER_TOKEN": OTHER_TOKEN,
        "BOT_TOKEN": "",
        "BOT_API_URL": other["BOT_API_URL"],
    }
    # When both run on one database, then both start
    processes = [pipeline.poller(**one), pipeline.worker("threads", 2, **one)]
    processes += [pipeline.poller(**two), pipeline.worker("threads", 2, **two)]
    for poller in (processes[0], processes[2]):
        poller.tells("leading")
    # And neither is handed the updates of the other
    pipeline.push(*(message(1, chat) for chat in range(1, 21)))
    pipeline.drained()
    assert pipeline.count("parked") == 0
