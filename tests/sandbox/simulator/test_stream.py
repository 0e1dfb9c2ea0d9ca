"""The stream of several chats, whose answers can be checked."""

import re
from collections import Counter, defaultdict
from itertools import islice
from typing import Any

from chatlanes_sandbox.simulator import Simulator
from chatlanes_sandbox.simulator.stream import StreamPlan, conversations
from tests.sandbox.calling import BotClient, wait_until


def content(update: dict[str, Any]) -> tuple[int, str]:
    """Chat and text of an update of any kind."""
    event = next(iter(update.values()))
    message = event.get("message", event)
    return message["chat"]["id"], event.get("data") or message["text"]


def test_every_update_carries_its_number_within_its_chat() -> None:
    numbers = defaultdict(list)
    for update in islice(conversations(StreamPlan(chats=8)), 2_000):
        chat, text = content(update)
        numbers[chat].append(int(re.findall(r"#(\d+)", text)[0]))
    assert len(numbers) == 8
    for counted in numbers.values():
        assert counted == list(range(1, len(counted) + 1))


def test_the_stream_has_every_kind() -> None:
    updates = list(islice(conversations(StreamPlan(chats=8)), 1_000))
    kinds = Counter(next(iter(update)) for update in updates)
    assert set(kinds) == {"message", "callback_query", "edited_message"}
    assert any("entities" in update.get("message", {}) for update in updates)
    members = defaultdict(set)
    for update in updates:
        members[content(update)[0]].add(next(iter(update.values()))["from"]["id"])
    assert all((len(users) > 1) == (chat < 0) for chat, users in members.items())
    assert {chat < 0 for chat in members} == {True, False}


def test_the_same_seed_gives_the_same_updates() -> None:
    first, same, other = ([content(u) for u in islice(conversations(StreamPlan(seed=seed)), 200)] for seed in (1, 1, 2))
    assert first == same != other


def test_a_stream_ends_at_its_total(simulator: Simulator, bot: BotClient) -> None:
    simulator.stream(chats=3, rate=5_000, total=250)
    wait_until(lambda: not simulator.stats()["streaming"])
    assert simulator.stats()["pending"] == 250
    assert bot.ids(offset=201) == list(range(201, 251))


def test_a_stream_continues_until_it_is_stopped(simulator: Simulator) -> None:
    simulator.stream(chats=3, rate=500)
    wait_until(lambda: simulator.stats()["added"] > 50)
    simulator.stop_stream()
    stats = simulator.stats()
    assert not stats["streaming"]
    assert simulator.stats()["added"] == stats["added"]


def test_it_wakes_a_long_poll(simulator: Simulator, bot: BotClient) -> None:
    answer = bot.long_poll()
    simulator.stream(chats=1, rate=0, total=3)
    assert len(answer.result().json()["result"]) == 3


def answered(bot: BotClient, *numbers: int, chat: int = 5) -> None:
    for number in numbers:
        bot("sendMessage", chat_id=chat, text=f"You said: hello #{number}")


def test_answers_in_order_in_every_chat(simulator: Simulator, bot: BotClient) -> None:
    answered(bot, 1, 2, 4)
    answered(bot, 1, chat=6)
    bot("sendMessage", chat_id=6, text="a reminder, and no answer")
    summary = {"total": 4, "chats": 2, "in_order": True, "out_of_order": 0, "duplicates": 0}
    assert simulator.stats()["answers"] == summary
    assert simulator.answers() == {5: [1, 2, 4], 6: [1]}


def test_an_answer_after_a_later_one_is_out_of_order(simulator: Simulator, bot: BotClient) -> None:
    answered(bot, 1, 3, 2)
    summary = {"total": 3, "chats": 1, "in_order": False, "out_of_order": 1, "duplicates": 0}
    assert simulator.stats()["answers"] == summary


def test_an_answer_twice_is_a_duplicate_and_no_disorder(simulator: Simulator, bot: BotClient) -> None:
    answered(bot, 1, 2, 2, 1, 3)
    summary = {"total": 5, "chats": 1, "in_order": True, "out_of_order": 0, "duplicates": 2}
    assert simulator.stats()["answers"] == summary


def test_a_number_far_ahead_costs_no_memory(simulator: Simulator, bot: BotClient) -> None:
    answered(bot, 1, 2026112112, 2, 2, 2026112113)
    summary = {"total": 5, "chats": 1, "in_order": False, "out_of_order": 1, "duplicates": 1}
    assert simulator.stats()["answers"] == summary
