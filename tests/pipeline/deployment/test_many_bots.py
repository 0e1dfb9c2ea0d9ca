"""Several bots with one poller and one worker: each uses its own token and settings, and none delays another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatlanes_sandbox.simulator import Simulator, start
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until

OTHER_ID = 7890
OTHER_TOKEN = f"{OTHER_ID}:SECRET-part_of-the_OTHER"
#: The first update id of the other bot, so that a history of both bots is unambiguous.
OTHERS_FROM = 1_000_000


@pytest.fixture(scope="module")
def other_telegram() -> Iterator[Simulator]:
    with start(OTHER_TOKEN, first_update_id=OTHERS_FROM) as simulator:
        yield simulator


@pytest.fixture
def other(other_telegram: Simulator) -> Simulator:
    other_telegram.reset()
    return other_telegram


@pytest.fixture
def both(make_pipeline: MakePipeline, other: Simulator, tmp_path: Path) -> Pipeline:
    """A pipeline with the bots `one`, its usual bot, and `other`."""
    file = tmp_path / "bots.toml"
    file.write_text(
        '[one]\ntoken_env = "BOT_TOKEN"\n'
        f'[other]\ntoken_env = "OTHER_TOKEN"\nbot_api_url = "{other.url}"\nbot = "tests.support.bots:bot"\n'
        "max_attempts = 2\nretry_backoff = 0\n"
    )
    return make_pipeline(BOTS=file, OTHER_TOKEN=OTHER_TOKEN)


def is_others(update: int) -> bool:
    return update >= OTHERS_FROM


def test_a_flood_for_one_bot_delays_no_other(both: Pipeline, other: Simulator) -> None:
    # Given a backlog of one bot in all of its queues, and after it a few updates of another bot
    both.push(*(message(1, chat) for chat in range(1, 401)))
    both.poller()
    until(lambda: both.pending() == 400)
    other.push(*(message(n, 7) for n in range(1, 6)))
    until(lambda: both.pending() == 405)
    # When a worker with few slots runs both
    both.worker("threads", 2)
    both.drained()
    # Then these few do not wait for the backlog: while their chat has a ready update, they get every other hand-out
    started = both.happened("start")
    assert len(started) == 405
    # At most this many were in the worker already when the next update of the chat became ready.
    prefetched = 2 * 16
    positions = [position for position, update in enumerate(started) if is_others(update)]
    gaps = [later - earlier for earlier, later in zip([0, *positions], positions, strict=False)]
    assert [gap < 2 * prefetched for gap in gaps] == [True] * 5
    # And they run in order, and each bot answers its own updates
    assert [started[position] for position in positions] == sorted(started[position] for position in positions)
    assert other.answers() == {7: [1, 2, 3, 4, 5]}
    assert both.simulator.answers().keys() == set(range(1, 401))


def test_a_failing_bot_does_not_affect_another(both: Pipeline, other: Simulator) -> None:
    # Given two bots with the same chat, and in one of them an update that always fails
    both.poller()
    [poison, _] = other.push(message(1, 7, do="fails:99"), message(2, 7))
    both.push(message(1, 7), message(2, 7))
    # When a worker runs all of them
    both.worker("threads", 4)
    both.drained()
    until(lambda: other.answers() == {7: [2]})
    # Then it has as many attempts as its bot's section allows, and its own bot's on_error is called
    assert both.dead() == [f"{OTHER_ID}:{poison}"]
    assert [problem["attempt"] for problem in both.problems(f"{OTHER_ID}:{poison}")] == [1, 2]
    assert both.happened("error:RuntimeError") == [poison, poison]
    # And the same chat of the other bot continues
    assert both.simulator.answers() == {7: [1, 2]}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('bot = "no_such:handle"', "[two] bot=no_such:handle: there is no module no_such"),
        (
            'token_env = "NO_TOKEN"',
            "[two] has no token: NO_TOKEN (token_env) is not set. The worker needs it to call the Bot API",
        ),
        ("max_attempts = 0", "[two] max_attempts=0: allowed is"),
    ],
)
def test_a_worker_exits_if_one_bot_cannot_be_loaded(
    make_pipeline: MakePipeline, tmp_path: Path, line: str, sentence: str
) -> None:
    file = tmp_path / "bots.toml"
    token = "" if "token" in line else 'token_env = "OTHER_TOKEN"\n'
    file.write_text(f'[one]\ntoken_env = "BOT_TOKEN"\n[two]\n{token}{line}\n')
    worker = make_pipeline(BOTS=file, OTHER_TOKEN=OTHER_TOKEN).worker("prefork", 1, is_awaited=False)
    assert worker.exit_code() == 2
    assert worker.log.strip().splitlines()[-1].startswith(f"{file}: {sentence}")


def test_updates_survive_the_move_to_many_bots(make_pipeline: MakePipeline, both: Pipeline) -> None:
    # Given updates of a deployment with a single bot
    alone: dict[str, Any] = {"BOTS": ""}
    ids = both.push(message(1, 7), message(2, 7))
    poller = both.poller(**alone)
    until(lambda: both.pending() == 2)
    poller.stop()
    # When it becomes one of several bots, and gets more updates
    ids += both.push(message(3, 7))
    both.poller()
    both.worker("threads", 2)
    both.drained()
    # Then all updates run, in order
    assert both.happened("start") == ids
    assert both.simulator.answers() == {7: [1, 2, 3]}
    assert both.state_of(ids[0]) is None
    assert f"{BOT_ID}:" not in "".join(both.dead())
