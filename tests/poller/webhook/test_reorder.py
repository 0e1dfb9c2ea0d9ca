"""Updates that arrive out of order: from the simulator, through several processes."""

from __future__ import annotations

import signal
from typing import Any

import requests

from celery_lanes.protocol import Store, connect, keys
from chatlanes_sandbox.simulator import Simulator
from tests.poller.lanes import lane
from tests.poller.webhook.conftest import StartReceiver
from tests.poller.webhook.process import SECRET, ReceiverProcess, pressed, update
from tests.support.bot_api import BOT_ID, message
from tests.support.waiting import until

CHATS = range(1, 9)
#: Longer than any retry here takes, so that no update is late.
LONG_MS = 10_000


def send_to(simulator: Simulator, receiver: ReceiverProcess) -> None:
    answer = requests.post(
        f"{simulator.url}/bot{simulator.token}/setWebhook",
        json={"url": receiver.url, "secret_token": SECRET, "max_connections": 20},
        timeout=60,
    )
    assert answer.ok


def test_disordered_updates_are_in_order_once(simulator: Simulator, start_receiver: StartReceiver) -> None:
    # Given a receiver with two processes, and a network that swaps kinds and repeats updates
    receiver = start_receiver("--workers=2", WEBHOOK_REORDER=LONG_MS)
    receiver.send(update(0))  # without an earlier update, the first one would be held
    simulator.disturb(jitter_s=0.05, repeat=0.2, seed=7)
    send_to(simulator, receiver)
    # When people in several chats write and press buttons, and a process is killed meanwhile
    pushed: dict[int, list[int]] = {chat: [] for chat in CHATS}

    def life(rounds: int) -> None:
        for _ in range(rounds):
            for chat in CHATS:
                ids = simulator.push(message(chat=chat), pressed(chat), message(chat=chat))
                pushed[chat] += [each for each in ids if each is not None]

    life(10)
    receiver.workers()[0].send_signal(signal.SIGKILL)
    life(10)
    # Then Telegram has delivered all of them, and every lane has each of its updates once, in order
    until(lambda: simulator.stats()["confirmed"] == simulator.stats()["added"])
    for chat in CHATS:
        until(lambda chat=chat: len(lane(receiver.redis_url, chat)) >= len(pushed[chat]))  # type: ignore[misc]
    assert {chat: [each for each in lane(receiver.redis_url, chat) if each] for chat in CHATS} == pushed
    # And no update is held any more
    with connect(receiver.redis_url) as client:
        assert client.exists(keys.HELD, f"{keys.GAP}{BOT_ID}") == 0
        assert int(client.hget(keys.COUNTS, "held") or 0) > 0
        assert int(client.hget(keys.COUNTS, "late") or 0) == 0


def test_sweep_releases_updates_of_a_dead_receiver(
    start_receiver: StartReceiver,
) -> None:
    # Given an update that is answered and held, and a dead receiver
    receiver = start_receiver(WEBHOOK_REORDER=1_000)
    assert receiver.send(update(5)).status_code == 200
    receiver.kill()
    # Then a worker's sweep moves it into its lane when its time is over
    with connect(receiver.redis_url) as client:
        store = Store(client)
        until(lambda: store.sweep(15_000) and lane(receiver.redis_url) == [5])
        assert store.pending("updates") == 1


def test_jump_of_ids_does_not_block(start_receiver: StartReceiver) -> None:
    receiver = start_receiver()
    for number in (900_000, 900_001, 5, 6):
        assert receiver.send(update(number)).status_code == 200
        until(lambda number=number: number in lane(receiver.redis_url))  # type: ignore[misc]
    assert lane(receiver.redis_url) == [900_000, 900_001, 5, 6]


def test_update_after_the_wait_is_late_and_counted(start_receiver: StartReceiver) -> None:
    receiver = start_receiver()
    receiver.send(update(0))
    receiver.send(update(2))
    until(lambda: lane(receiver.redis_url) == [0, 2])
    assert receiver.send(update(1)).status_code == 200
    until(lambda: lane(receiver.redis_url) == [0, 2, 1])
    receiver.stop()
    assert receiver.told("1 arrived late")


def left_ms(receiver: ReceiverProcess, number: int) -> float:
    """The remaining time for which an update is held."""
    with connect(receiver.redis_url) as client:
        seconds, micros = client.time()
        until_ms: Any = client.zscore(keys.HELD, f"{BOT_ID}:{number}")
        return float(until_ms or 0) - float(seconds) * 1000 - micros / 1000


def test_update_that_joins_a_gap_late_has_its_full_time(start_receiver: StartReceiver) -> None:
    # Given update 3, of another chat, that has waited for 2 for most of its time
    receiver = start_receiver(WEBHOOK_REORDER=5_000)
    for number, chat in ((0, 7), (1, 7), (3, 8)):
        assert receiver.send(update(number, chat)).status_code == 200
    until(lambda: left_ms(receiver, 3) < 1_000)
    # When 4 joins it, and 2 arrives after 3 was released
    assert receiver.send(update(4)).status_code == 200
    until(lambda: lane(receiver.redis_url, 8) == [3])
    assert receiver.send(update(2)).status_code == 200
    # Then 2 is before 4
    assert lane(receiver.redis_url) == [0, 1, 2, 4]


def test_update_does_not_wait_for_a_closed_gap(start_receiver: StartReceiver) -> None:
    receiver = start_receiver()
    for number, chat in ((0, 7), (1, 7), (3, 8)):
        assert receiver.send(update(number, chat)).status_code == 200
    until(lambda: lane(receiver.redis_url, 8) == [3])
    assert receiver.send(update(4)).status_code == 200
    # Then 4 joins its lane at once, and 2 is late
    assert lane(receiver.redis_url) == [0, 1, 4]
    assert receiver.send(update(2)).status_code == 200
    assert lane(receiver.redis_url) == [0, 1, 4, 2]
    receiver.stop()
    assert receiver.told("1 arrived late")


def test_without_reordering_the_order_of_arrival_is_kept(start_receiver: StartReceiver) -> None:
    receiver = start_receiver(WEBHOOK_REORDER=0)
    for number in (7, 5, 6):
        receiver.send(update(number))
    assert lane(receiver.redis_url) == [7, 5, 6]


def test_filtered_update_is_not_waited_for(start_receiver: StartReceiver) -> None:
    receiver = start_receiver(ALLOWED_UPDATES="message", WEBHOOK_REORDER=LONG_MS)
    receiver.send(update(0))
    assert receiver.send({"update_id": 1, **pressed()}).status_code == 200
    receiver.send(update(2))
    # Long before its time is over
    assert lane(receiver.redis_url) == [0, 2]
    receiver.stop()
    assert receiver.told("3 updates so far: 2 added, 0 seen before, 0 buried, 1 filtered out")
