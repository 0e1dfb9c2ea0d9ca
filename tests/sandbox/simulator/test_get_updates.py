"""getUpdates of the simulator behaves as that of the real server."""

import socket

import pytest

from chatlanes_sandbox.simulator import Simulator
from tests.sandbox.calling import BotClient, text_update, wait_until


def test_updates_come_in_order_and_stay_until_they_are_confirmed(simulator: Simulator, bot: BotClient) -> None:
    ids = simulator.push(*[text_update(f"#{n}") for n in range(5)])
    assert ids == [1, 2, 3, 4, 5]
    first = bot.updates()
    assert [update["message"]["text"] for update in first] == ["#0", "#1", "#2", "#3", "#4"]
    assert bot.updates() == first


def test_an_offset_confirms_lower_ids_on_receipt(simulator: Simulator, bot: BotClient) -> None:
    # Given two updates that were fetched
    simulator.push(text_update(), text_update())
    assert bot.ids() == [1, 2]
    # When a long poll with the next offset is on its way, and nobody has been answered yet
    bot.long_poll(offset=3)
    # Then they are forgotten
    assert simulator.stats()["pending"] == 0
    assert simulator.stats()["confirmed"] == 2


@pytest.mark.parametrize(
    ("offset", "left"),
    [(0, [1, 2, 3, 4]), (1, [1, 2, 3, 4]), (3, [3, 4]), (5, []), (-1, [4]), (-3, [2, 3, 4]), (-9, [1, 2, 3, 4])],
)
def test_offsets(simulator: Simulator, bot: BotClient, offset: int, left: list[int]) -> None:
    simulator.push(*[text_update()] * 4)
    assert bot.ids(offset=offset) == left
    assert bot.ids() == left


def test_an_offset_far_in_the_future_confirms_nothing(simulator: Simulator, bot: BotClient) -> None:
    simulator.push(text_update())
    assert bot.ids(offset=1_000_000) == [1]
    assert simulator.stats()["confirmed"] == 0


def test_after_a_week_without_updates_the_ids_may_start_lower(simulator: Simulator, bot: BotClient) -> None:
    simulator.push(text_update(update_id=500_000))
    assert bot.ids(offset=500_001) == []
    simulator.push(text_update(update_id=1_000))
    assert bot.ids(offset=500_001) == [1_000]


@pytest.mark.parametrize(("limit", "given"), [(1, 1), (7, 7), (100, 100), (0, 1), (1000, 100), ("x", 100)])
def test_limits(simulator: Simulator, bot: BotClient, limit: object, given: int) -> None:
    simulator.push(*[text_update()] * 120)
    assert len(bot.updates(limit=limit)) == given


def test_a_reply_holds_at_most_four_mebibytes(simulator: Simulator, bot: BotClient) -> None:
    simulator.push(*[text_update("x" * 1_000_000)] * 6)
    assert len(bot.updates()) == 4


def test_a_long_poll_is_answered_as_soon_as_there_is_an_update(simulator: Simulator, bot: BotClient) -> None:
    answer = bot.long_poll()
    assert not answer.done()
    simulator.push(text_update("now"))
    assert answer.result().json()["result"][0]["message"]["text"] == "now"


def test_a_long_poll_without_updates_ends_empty_after_its_timeout(bot: BotClient) -> None:
    assert bot.updates(timeout=1) == []


def test_the_newer_long_poll_terminates_the_older_one(simulator: Simulator, bot: BotClient) -> None:
    older = bot.long_poll()
    newer = bot.long_poll()
    assert older.result().status_code == 409
    assert older.result().json() == {
        "ok": False,
        "error_code": 409,
        "description": "Conflict: terminated by other getUpdates request; "
        "make sure that only one bot instance is running",
    }
    simulator.push(text_update())
    assert newer.result().status_code == 200
    assert simulator.stats()["conflicts"] == 1


def test_while_updates_are_pending_two_pollers_get_the_same_batch(simulator: Simulator, bot: BotClient) -> None:
    simulator.push(text_update(), text_update())
    assert bot.ids(timeout=50) == bot.ids(timeout=50) == [1, 2]


def test_with_a_webhook_set_there_are_no_updates_to_get(simulator: Simulator, bot: BotClient) -> None:
    waiting = bot.long_poll()
    assert bot.result("setWebhook", url="https://example.org/hook")
    assert waiting.result().json()["description"] == "Conflict: terminated by setWebhook request"
    refused = bot("getUpdates")
    assert refused.status_code == 409
    assert refused.json()["description"] == (
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
    )
    assert bot.result("deleteWebhook")
    assert bot.updates() == []


@pytest.mark.parametrize("as_text", [False, True])
def test_kinds_that_are_not_allowed_are_dropped_as_they_come(
    simulator: Simulator, bot: BotClient, as_text: bool
) -> None:
    kinds = ["message", "chat_member", "callback_query"]
    # By default all but three kinds are allowed
    assert simulator.push(*[{kind: {}} for kind in kinds]) == [1, None, 2]
    # A list stays in force until another one comes
    asked = ["chat_member", "callback_query"]
    bot.updates(offset=3, allowed_updates=str(asked).replace("'", '"') if as_text else asked)
    bot.updates()
    assert simulator.push(*[{kind: {}} for kind in kinds]) == [None, 3, 4]
    # What cannot be read changes nothing; an empty list is the default again
    bot.updates(allowed_updates="[oops")
    assert simulator.push({"message": {}}) == [None]
    bot.updates(allowed_updates=[])
    assert simulator.push({"message": {}}, {"message_reaction": {}}, {"message_reaction_count": {}}) == [5, None, None]


def test_malformed_updates_are_given_out_as_they_are(simulator: Simulator, bot: BotClient) -> None:
    bodies: list[object] = ["not an object", None, 5, [], {"message": {}}, {"update_id": "7", "message": {}}]
    simulator.push(text_update())
    simulator.push_raw(*bodies)
    assert bot.updates()[1:] == bodies
    # They are confirmed with the next update that has an id
    assert simulator.push(text_update()) == [8]
    assert bot.updates(offset=9) == []


def test_a_full_store_drops_new_updates(simulator: Simulator, bot: BotClient) -> None:
    assert simulator.push(*[{"poll": {}}] * 100_001)[-2:] == [100_000, None]
    stats = simulator.stats()
    assert (stats["pending"], stats["dropped"]) == (100_000, 1)
    assert bot.ids(offset=100_000) == [100_000]


def test_a_poller_that_hung_up_is_not_told_of_a_conflict(simulator: Simulator, bot: BotClient) -> None:
    # Given a poller whose connection broke in the middle of its long poll
    host, port = simulator.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        path = f"/bot{simulator.token}/getUpdates?timeout=50"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        wait_until(lambda: simulator.stats()["polls"] == 1)
    # When it is back
    answer = bot.long_poll()
    simulator.push(text_update())
    # Then it was alone
    assert answer.result().status_code == 200
    assert simulator.stats()["conflicts"] == 0


@pytest.mark.slow
def test_the_same_offset_again_at_once_gives_a_single_update(quirky_bot: BotClient) -> None:
    quirky_bot.simulator.push(*[text_update()] * 5)
    assert quirky_bot.ids(offset=1) == [1, 2, 3, 4, 5]
    assert quirky_bot.ids(offset=1) == [1]
    assert quirky_bot.ids(offset=2) == [2, 3, 4, 5]


@pytest.mark.slow
def test_the_same_offset_again_with_a_short_timeout_is_held(quirky_bot: BotClient) -> None:
    # Given a poll that came back empty at once
    assert quirky_bot.ids(offset=1) == []
    # When the same is asked again, without a timeout
    held = quirky_bot.long_poll(offset=1, timeout=0)
    # Then it waits for updates all the same
    assert not held.done()
    quirky_bot.simulator.push(text_update())
    assert held.result().json()["result"][0]["update_id"] == 1
