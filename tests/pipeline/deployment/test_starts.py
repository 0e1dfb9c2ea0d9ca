"""A process with invalid settings exits with a one-line error and takes no update."""

from __future__ import annotations

from pathlib import Path

import pytest

from celery_lanes.embedded_server import start_server
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import message
from tests.support.waiting import until


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"BOT": "no_such_bot:handle"}, "BOT=no_such_bot:handle: there is no module no_such_bot"),
        ({"BOT": "tests.support.bots:hande"}, "BOT=tests.support.bots:hande: tests.support.bots has no hande"),
        ({"BOT": "tests.support.bots:not_callable"}, "BOT=tests.support.bots:not_callable names a value of type str"),
        ({"BOT_TOKEN": ""}, "BOT_TOKEN is not set"),
        ({"BOT_TOKEN": "none"}, "BOT_TOKEN is wrong (its value is secret and not shown)"),
        ({"LEASE_SECONDS": 0}, "LEASE_SECONDS=0: allowed is"),
        ({"REDIS_URL": "http://127.0.0.1/"}, "REDIS_URL"),
    ],
)
def test_a_worker_with_an_invalid_setting_exits_with_one_line(
    make_pipeline: MakePipeline, settings: dict[str, object], sentence: str
) -> None:
    # Given an update that waits in its lane
    pipeline = make_pipeline()
    [waiting] = pipeline.push(message(1, 7))
    pipeline.poller()
    until(lambda: pipeline.state_of(waiting) == "ready")
    # When a worker starts with an invalid setting
    worker = pipeline.worker("prefork", 1, is_awaited=False, **settings)
    # Then it exits, and its last line names the problem
    assert worker.exit_code() == 2
    assert worker.log.strip().splitlines()[-1].startswith(sentence)
    assert "Traceback" not in worker.log
    # And it has not touched the update
    assert pipeline.state_of(waiting) == "ready"
    assert pipeline.count("handed_out") == 0


@pytest.mark.parametrize("option", ["-Q", "-X"])
def test_an_unknown_queue_is_named(make_pipeline: MakePipeline, option: str) -> None:
    worker = make_pipeline(QUEUES=2).worker("prefork", 1, option, "updates.0,updates.9", is_awaited=False)
    assert worker.exit_code() == 2
    assert (
        worker.log.strip()
        .splitlines()[-1]
        .startswith("-Q or -X names updates.9: there is no such queue. The queues are")
    )
    assert "Traceback" not in worker.log


def test_an_import_error_of_the_bot_shows_its_line(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    (pipeline.directory / "broken.py").write_text("def handle(ctx): ...\n\nraise RuntimeError('not today')\n")
    worker = pipeline.worker("prefork", 1, is_awaited=False, BOT="broken:handle")
    assert worker.exit_code() == 2
    assert 'broken.py", line 3' in worker.log
    assert "RuntimeError: not today" in worker.log
    assert worker.log.strip().splitlines()[-1].startswith("BOT=broken:handle: importing broken failed with RuntimeErr")


def test_a_wrong_redis_password_is_logged_and_retried(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    # Given a Redis with a password, and settings with a wrong one
    with start_server(tmp_path / "redis", extra=["--requirepass", "correct"]) as redis:
        wrong = redis.url.replace("127", ":wrong-password@127")
        pipeline = make_pipeline(redis_url=redis.url.replace("127", ":correct@127"))
        # When poller and worker start
        poller = pipeline.poller(REDIS_URL=wrong)
        worker = pipeline.worker(is_awaited=False, REDIS_URL=wrong)
        # Then each logs the error and retries; neither logs the password
        for process in (poller, worker):
            process.tells("invalid username-password pair")
            assert process.is_running()
            assert "wrong-password" not in process.log
        # And they continue as soon as Redis accepts the password
        pipeline.redis.config_set("requirepass", "wrong-password")
        worker.tells(" ready.")
        [update] = pipeline.push(message(1, 7))
        pipeline.ended(update)


@pytest.mark.first_only
@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_an_unreachable_bot_api_leaks_no_token(make_pipeline: MakePipeline, level: str) -> None:
    # Given an update with two attempts
    pipeline = make_pipeline(MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    [failing] = pipeline.push(message(1, 7))
    pipeline.poller()
    until(lambda: pipeline.state_of(failing) == "ready")
    # When a worker that cannot reach the Bot API runs it
    worker = pipeline.worker("threads", 2, "--loglevel", level, BOT_API_URL="http://127.0.0.1:1")
    pipeline.drained()
    # Then the failure is in its log, and the token is neither there (process.py checks it) nor in the dead letters
    assert "NetworkError" in worker.log
    problems = pipeline.problems(pipeline.dead()[0])
    assert {problem["type"] for problem in problems} == {"NetworkError"}
    assert pipeline.secret not in str(problems)
