"""ask, refused, accepted: seed a state, run one script, compare the whole state, on every server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import chatlanes.telegram.flood
from celery_lanes.protocol import Store, script
from chatlanes.telegram.flood.keys import (
    COUNTS,
    FloodCounts,
    FloodPause,
    ask_keys,
    flood_counts,
    flood_pauses,
    keys_of,
    refused_keys,
)

KEYS = keys_of("1", "7")
#: So long that a slow test does not use a minute of it.
HOUR_US, MINUTE_US = 3_600_000_000, 60_000_000
MINUTE_MS = 60_000
LUA = Path(chatlanes.telegram.flood.__file__).parent / "lua"

State = dict[str, Any]


def now_us(client: Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1_000_000 + int(micros)


def seed(client: Redis, state: State) -> None:
    """`key: minutes` is a pause, `key: {field: minutes from now}` a rate, `key: {scopes}` the refused scopes."""
    now = now_us(client)
    for key, value in state.items():
        if isinstance(value, set):
            client.sadd(key, *value)
            client.pexpire(key, MINUTE_MS)
        elif isinstance(value, dict):
            client.hset(key, mapping={field: now + round(minutes * MINUTE_US) for field, minutes in value.items()})
            client.pexpire(key, max(1_000, round(max(value.values()) * MINUTE_MS) + 1_000))
        else:
            client.set(key, "1", px=round(value * MINUTE_MS))


def read(client: Redis) -> State:
    """The whole state except the counters, in tenths of a minute. Fails on a key that never expires."""
    now, state = now_us(client), {}
    for name in client.scan_iter():
        key = name.decode()
        if key.startswith(COUNTS):
            continue
        left_ms = client.pttl(key)
        assert left_ms > 0, key
        kind = client.type(key)
        if kind == b"set":
            state[key] = {scope.decode() for scope in client.smembers(key)}
        elif kind == b"zset":
            found = client.zrange(key, 0, -1, withscores=True)
            state[key] = {scope.decode(): round((at_ms * 1000 - now) / MINUTE_US, 1) for scope, at_ms in found}
        elif kind == b"hash":
            found = client.hgetall(key)
            assert int(found.pop(b"at", now)) <= now
            state[key] = {field.decode(): round((float(at) - now) / MINUTE_US, 1) for field, at in found.items()}
            assert left_ms * 1000 >= max(float(at) for at in found.values()) - now
        else:
            state[key] = round(left_ms / MINUTE_MS, 1)
    return state


def ask(client: Redis, *, cost: int = 1, patience: float = 0, bot: float = 0, slack: float = 0, chat: float = 0,
        group: float = 0, burst: int = 1, keys: Any = KEYS, waited_ms: int = 0) -> tuple[str, float, int]:  # fmt: skip
    """Durations in minutes. Returns the decision, the wait, and whether refused scopes are recorded."""
    lua = script("ask", "chatlanes.telegram.flood")
    us = {"bot_us": bot, "slack_us": slack, "chat_us": chat, "group_us": group}
    minutes = {name: value * MINUTE_US for name, value in us.items()}
    command = lua.command(
        ask_keys(keys, "sendMessage"),
        cost=cost,
        longest_wait_us=round(patience * MINUTE_US),
        **minutes,
        burst=burst,
        waited_ms=waited_ms,
    )
    what, wait_us, at_us, refused = Store(client).run(command)
    assert abs(at_us - now_us(client) - wait_us) < MINUTE_US / 20
    return what.decode(), round(wait_us / MINUTE_US, 1), refused


def refused(client: Redis, minutes: float, chat: str = "7") -> int:
    lua = script("refused", "chatlanes.telegram.flood")
    keys = keys_of("1", chat)
    return int(Store(client).run(lua.command(refused_keys(keys), scope=chat, wait_ms=round(minutes * MINUTE_MS))))


# -- pauses


def test_unlimited_call_leaves_nothing(client: Redis) -> None:
    assert ask(client) == ("go", 0, 0)
    assert read(client) == {}


PAUSES = [
    ({KEYS.scope: 10}, ("pause", 10, 0)),
    ({KEYS.bot: 10}, ("bot", 10, 0)),
    ({KEYS.bot: 5, KEYS.scope: 10}, ("pause", 10, 0)),
    ({KEYS.bot: 10, KEYS.scope: 5}, ("bot", 10, 0)),
    ({"flood:1:8": 10, "flood:12": 10, "flood:2": 10, KEYS.refused: {"8"}}, ("go", 0, 1)),
]


@pytest.mark.parametrize(("state", "answer"), PAUSES)
@pytest.mark.parametrize("cost", [0, 1])
def test_paused_call_takes_no_slot(client: Redis, state: State, answer: tuple[str, float, int], cost: int) -> None:
    seed(client, state)
    limits = {} if answer[0] == "go" else {"bot": 1, "chat": 1, "group": 1}
    assert ask(client, cost=cost, **limits) == answer
    assert read(client) == {**state, **({KEYS.refused: {"8"}} if KEYS.refused in state else {})}


def test_refusal_pauses_its_scope(client: Redis) -> None:
    assert refused(client, 10) == 0
    assert read(client) == {KEYS.scope: 10, KEYS.refused: {"7"}, KEYS.waits: {"7": 10}}


def test_pause_is_only_extended(client: Redis) -> None:
    seed(client, {KEYS.scope: 10, KEYS.refused: {"7"}})
    assert refused(client, 5) == 0
    assert read(client) == {KEYS.scope: 10, KEYS.refused: {"7"}}
    assert refused(client, 20) == 0
    assert read(client) == {KEYS.scope: 20, KEYS.refused: {"7"}, KEYS.waits: {"7": 20}}


def test_two_refused_scopes_pause_the_bot_for_the_shorter_time(client: Redis) -> None:
    seed(client, {"flood:1:8": 5, KEYS.refused: {"8"}})
    assert refused(client, 10) == 1
    waits = {KEYS.waits: {"7": 10, "*": 5}}
    assert read(client) == {"flood:1:8": 5, KEYS.scope: 10, KEYS.bot: 5, KEYS.refused: {"7", "8"}, **waits}


def test_pause_starts_again_when_the_clock_was_set_back(client: Redis) -> None:
    # Given pauses of which more is left than they had, and one of an earlier release, which does not tell
    seed(client, {KEYS.bot: 600, KEYS.scope: 605, "flood:1:8": 600})
    client.set(KEYS.bot, 5 * MINUTE_MS, xx=True, keepttl=True)
    client.set(KEYS.scope, 10 * MINUTE_MS, xx=True, keepttl=True)
    # Then a call waits for as long as the pause was
    assert ask(client) == ("pause", 10, 0)
    assert read(client) == {KEYS.bot: 5, KEYS.scope: 10, "flood:1:8": 600}
    # And a longer pause still counts
    assert refused(client, 20) == 0
    assert read(client) == {KEYS.bot: 5, KEYS.scope: 20, "flood:1:8": 600, KEYS.refused: {"7"}, KEYS.waits: {"7": 20}}


@pytest.mark.parametrize("minutes", [1, 600])
def test_rates_start_again_when_the_clock_was_set_back(client: Redis, minutes: int) -> None:
    # Given slots that were taken, and waits that were given, before the clock was set back by these minutes
    seed(client, {KEYS.bot_rate: {"at": minutes, "next": minutes + 1, "back": minutes + 9}})
    seed(client, {KEYS.chat_rate: {"at": minutes, "chat": minutes + 1, "group": minutes + 2}})
    # Then a call goes at once, and a later one waits as usual
    limits = {"bot": 1, "chat": 1, "group": 1, "patience": 0.5}
    assert ask(client, **limits) == ("go", 0, 0)
    assert ask(client, bot=1, patience=0.5) == ("busy", 0.5, 0)


def test_acceptance_clears_the_refused_scopes_only(client: Redis) -> None:
    seed(client, {KEYS.scope: 10, "flood:1:8": 5, KEYS.refused: {"7", "8"}})
    lua = script("accepted", "chatlanes.telegram.flood")
    assert [Store(client).run(lua.command([KEYS.refused])) for _ in range(2)] == [1, 0]
    assert read(client) == {KEYS.scope: 10, "flood:1:8": 5}


def test_expired_pause_does_not_count_as_a_second_one(client: Redis) -> None:
    seed(client, {KEYS.refused: {"8"}})
    assert refused(client, 10) == 0
    assert read(client) == {KEYS.scope: 10, KEYS.refused: {"7"}, KEYS.waits: {"7": 10}}


def test_refusal_after_an_acceptance_pauses_one_scope(client: Redis) -> None:
    seed(client, {"flood:1:8": 5})
    assert refused(client, 10) == 0
    assert read(client) == {"flood:1:8": 5, KEYS.scope: 10, KEYS.refused: {"7"}, KEYS.waits: {"7": 10}}


def test_pauses_can_be_inspected(client: Redis) -> None:
    refused(client, 10)
    refused(client, 5, "setmyname")
    client.zadd(KEYS.waits, {"8": 1})  # expired, but not removed yet
    found = [FloodPause(what, round(left_s / 60, 1)) for what, left_s in flood_pauses(client, 1)]
    assert sorted(found) == [("chat 7", 10), ("setmyname", 5), ("the bot", 5)]
    assert flood_pauses(client, 2) == []
    client.delete("flood:1", KEYS.scope)
    assert [each.what for each in flood_pauses(client, 1)] == ["setmyname"]


# -- rates


def test_messages_of_a_bot_get_consecutive_slots(client: Redis) -> None:
    answers = [ask(client, bot=10, patience=60, keys=keys_of("1", str(chat))) for chat in range(4)]
    assert answers == [("go", 0, 0), ("slot", 10, 0), ("slot", 20, 0), ("slot", 30, 0)]
    assert read(client) == {KEYS.bot_rate: {"next": 40}}


def test_unused_slots_are_lost_except_the_slack(client: Redis) -> None:
    seed(client, {KEYS.bot_rate: {"next": -30}})
    assert ask(client, bot=10, slack=15, patience=60) == ("go", 0, 0)
    assert ask(client, bot=10, slack=15, patience=60) == ("go", 0, 0)
    assert ask(client, bot=10, slack=15, patience=60) == ("slot", 5, 0)
    assert read(client) == {KEYS.bot_rate: {"next": 30}}


def test_too_long_wait_takes_no_slot(client: Redis) -> None:
    seed(client, {KEYS.bot_rate: {"next": 25}})
    assert ask(client, bot=10, patience=20) == ("busy", 20, 0)
    assert ask(client, bot=10, patience=20) == ("busy", 30, 0)  # retries are spread over time
    assert read(client) == {KEYS.bot_rate: {"next": 25, "back": 40}}


def test_chat_has_a_burst_and_then_its_rate(client: Redis) -> None:
    answers = [ask(client, chat=10, burst=3) for _ in range(4)]
    assert answers == [("go", 0, 0)] * 3 + [("rate", 10, 0)]
    assert read(client) == {KEYS.chat_rate: {"chat": 30}}


def test_chat_at_its_rate_takes_no_slot_of_the_bot(client: Redis) -> None:
    state = {KEYS.chat_rate: {"chat": 40}, KEYS.bot_rate: {"next": 10}}
    seed(client, state)
    assert ask(client, bot=10, chat=10, patience=60) == ("rate", 40, 0)
    assert read(client) == state
    # Other chats are not affected.
    assert ask(client, bot=10, chat=10, patience=60, keys=keys_of("1", "8")) == ("slot", 10, 0)


def test_slot_waits_for_the_chat_and_the_bot(client: Redis) -> None:
    seed(client, {KEYS.chat_rate: {"chat": 10}, KEYS.bot_rate: {"next": 20}})
    assert ask(client, bot=10, chat=10, patience=60) == ("slot", 20, 0)
    assert read(client) == {KEYS.chat_rate: {"chat": 30}, KEYS.bot_rate: {"next": 30}}


def test_group_has_two_rates(client: Redis) -> None:
    answers = [ask(client, chat=1, group=20, burst=2) for _ in range(3)]
    assert answers == [("go", 0, 0), ("go", 0, 0), ("rate", 20, 0)]
    assert read(client) == {KEYS.chat_rate: {"chat": 2, "group": 40}}


def test_album_counts_each_of_its_messages(client: Redis) -> None:
    assert ask(client, cost=5, bot=1, chat=10, burst=3, patience=60) == ("go", 0, 0)
    assert ask(client, cost=5, bot=1, chat=10, burst=3, patience=60) == ("rate", 30, 0)
    assert read(client) == {KEYS.bot_rate: {"next": 5}, KEYS.chat_rate: {"chat": 50}}


def test_slots_from_before_the_clock_was_set_back_are_ignored(client: Redis) -> None:
    seed(client, {KEYS.bot_rate: {"next": 90}, KEYS.chat_rate: {"chat": 90}})
    assert ask(client, bot=0.1, chat=0.1, patience=60) == ("go", 0, 0)
    assert read(client) == {KEYS.bot_rate: {"next": 0.1}, KEYS.chat_rate: {"chat": 0.1}}


def test_full_redis_still_answers(client: Redis) -> None:
    ask(client, bot=1, patience=1)
    refused(client, 1, "8")
    client.flushall()
    client.config_set("maxmemory", 1)
    try:
        assert ask(client, bot=10, patience=20) == ("go", 0, 0)
        assert refused(client, 10) == 0
    finally:
        client.config_set("maxmemory", 0)
    state = {KEYS.bot_rate: {"next": 10}, KEYS.scope: 10, KEYS.refused: {"7"}, KEYS.waits: {"7": 10}}
    assert read(client) == state


# -- counts


def test_refusals_and_waits_are_counted(client: Redis) -> None:
    assert flood_counts(client, 1) == FloodCounts(0, 0, 0.0)
    for chat in ("7", "8"):
        refused(client, 10, chat)
    for waited_ms in (0, 1500, 200):
        ask(client, waited_ms=waited_ms)
    assert flood_counts(client, 1) == FloodCounts(2, 2, 1.7)
    assert flood_counts(client, 2) == FloodCounts(0, 0, 0.0)


# -- the headers


@pytest.mark.parametrize("verb", ["ask", "refused", "accepted"])
def test_header_lists_the_arguments(verb: str) -> None:
    source = (LUA / f"{verb}.lua").read_text()
    fixed = script(verb, "chatlanes.telegram.flood").fixed
    if fixed:
        assert f"local {', '.join(fixed)} = unpack(ARGV, 1, {len(fixed)})" in source
    [named] = re.findall(r"^-- KEYS  (.*)$", source, re.MULTILINE)
    used = {int(number) for number in re.findall(r"KEYS\[(\d)\]", source + (LUA / "lib/prelude.lua").read_text())}
    assert used <= {int(number) for number in re.findall(r"(\d)  ?\w", named)}
    assert not re.findall(r"'[a-z-]+:", re.sub("--.*", "", source))  # scripts contain no key names
