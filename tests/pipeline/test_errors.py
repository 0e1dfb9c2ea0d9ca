"""The stored and published form of a handler's error: bounded, and without secrets."""

from __future__ import annotations

import json
from time import monotonic

import pytest

from chatlanes.settings import secret_from
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.monitoring.test_flower import Flower
from tests.support.pipeline import BOT_ID, TOKEN, message
from tests.support.waiting import until

PASSWORD, HOOK_SECRET = "r3dis-p4ssw0rd/x", "a-h00k-secret"
HUGE = [*(f"raises_huge:{how}" for how in ("text", "cause", "group", "chain", "hidden")), "recurses:_"]
SECRETS = (TOKEN.partition(":")[2], PASSWORD, "r3dis-p4ssw0rd%2Fx", HOOK_SECRET, secret_from(TOKEN))


@pytest.mark.first_only
@pytest.mark.parametrize("where", ["text", "cause", "note"])
def test_secrets_in_errors_are_neither_stored_nor_shown(
    make_pipeline: MakePipeline, redis_url: str, where: str
) -> None:
    # Given a Redis with a password, Flower, and a worker with a webhook secret
    pipeline = make_pipeline(MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01, WEBHOOK_SECRET=HOOK_SECRET)
    pipeline.redis.config_set("requirepass", PASSWORD)
    address = redis_url.replace("://", "://:r3dis-p4ssw0rd%2Fx@", 1)
    try:
        pipeline.settings["REDIS_URL"] = address
        flower = Flower(pipeline)
        worker = pipeline.worker("prefork", 1)
        until(lambda: flower.knows("w1@test"))
        # When a handler fails twice, with every secret in its error
        [failing] = pipeline.push(message(1, 5, do=f"raises_secrets:{where}"))
        pipeline.poller()
        until(lambda: flower.task(failing).get("state") == "FAILURE")
        until(lambda: pipeline.dead() == [f"{BOT_ID}:{failing}"])
        # Then no output contains a secret
        outputs = {
            "the task page": flower.page(f"task/{BOT_ID}:{failing}"),
            "the API": json.dumps(flower.task(failing)),
            "the errors in Redis": json.dumps(pipeline.problems(f"{BOT_ID}:{failing}")),
            "the log": worker.log,
        }
        show = pipeline.command("lanes", "dead", "show", f"{BOT_ID}:{failing}")
        assert show.exit_code() == 0
        outputs["lanes dead show"] = show.log
        assert "RuntimeError" in outputs["the API"]
        assert "RuntimeError" in outputs["lanes dead show"]
        for where_shown, text in outputs.items():
            for secret in SECRETS:
                assert secret not in text, where_shown
    finally:
        pipeline.redis.config_set("requirepass", "")


@pytest.mark.first_only
@pytest.mark.parametrize("pool", ["prefork", "threads"])
@pytest.mark.parametrize("how", HUGE)
def test_a_huge_error_delays_no_other(make_pipeline: MakePipeline, pool: str, how: str) -> None:
    # Given a worker that sends events
    pipeline = make_pipeline(MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    worker = pipeline.worker(pool, 2, "-E")
    pipeline.poller()
    pipeline.ended(*pipeline.push(message(1, 7)))
    # When a handler fails with a huge error
    [failing, *others] = pipeline.push(message(1, 5, do=how), *(message(n, 6) for n in range(2, 12)))
    pipeline.started(failing)
    began_s = monotonic()
    pipeline.drained()
    # Then all updates end soon, and the stored errors and the log are bounded
    assert monotonic() - began_s < 20
    assert set(others) < set(pipeline.happened("end"))
    problems = pipeline.problems(f"{BOT_ID}:{failing}")
    assert len(problems) == 2
    assert all(len(json.dumps(problem)) < 50_000 for problem in problems)
    assert all("in handle" in problem["traceback"] or "left out" in problem["traceback"] for problem in problems)
    assert len(worker.log) < 300_000
