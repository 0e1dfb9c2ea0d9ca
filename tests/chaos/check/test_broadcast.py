"""Recipients that a broadcast has lost or reached twice, and broadcasts that began in part, are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from chaos.check import broadcast
from chaos.check.checker import check
from chaos.evidence.records import BroadcastFindings, Effect, Evidence, messages_of_broadcast
from chaos.systems.broadcast import FIRST
from tests.chaos.story import Story


def evidence(
    news: Mapping[int, int],
    counts: Mapping[str, int],
    missed: Mapping[int, str] | None = None,
    *,
    others: Mapping[str, BroadcastFindings] | None = None,
    sent: Sequence[str] = (),
    promised: Sequence[str] = ("main",),
) -> Evidence:
    """`news`: the number of messages of the main broadcast by chat; it has three recipients. `sent`: the id and chat of
    each message of the others.
    """
    main = {"main": BroadcastFindings(3, counts, missed or {})}
    effects = [Effect(1.0, 0, 0, None, None, text=f"broadcast {each}") for each in sent]
    given = {"main_broadcast": "main", "broadcasts": main | dict(others or {}), "promised": promised}
    return Evidence(**{**vars(Story().evidence()), **given, "news": news, "effects": effects})


REACHED, SENT = {1: 1, 2: 1, 3: 1}, {"sent": 3}
OTHER = {"b": BroadcastFindings(2, {"sent": 2}, {})}
BOTH = (f"b {FIRST}", f"b {FIRST + 1}")


@pytest.mark.parametrize(
    "found",
    [
        evidence(REACHED, SENT),
        evidence({1: 1, 2: 1}, {"sent": 2, "uncertain": 1}, {3: "uncertain"}),
        evidence(REACHED, {"sent": 2, "uncertain": 1}, {3: "uncertain"}),
        evidence(REACHED, SENT, others=OTHER, sent=BOTH, promised=["main", "b"]),
        evidence(REACHED, SENT, others=OTHER, sent=BOTH),  # its command was killed before it printed the id
    ],
)
def test_each_recipient_is_reached_once_or_listed(found: Evidence) -> None:
    assert (broadcast.lost(found), broadcast.wrong(found)) == ([], [])


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        (evidence({1: 1, 2: 1}, SENT), ["broadcast main: chat 3 has not got the message, and is not listed"]),
        (
            evidence(REACHED, {"sent": 2}),
            ["broadcast main: its results are {'sent': 2}, and it lists {}"],
        ),
        (evidence({**REACHED, 3: 2}, SENT), ["chat 3 got the message of the main broadcast twice"]),
        (
            evidence(REACHED, {"sent": 2, "dropped": 1}, {3: "dropped"}),
            ["broadcast main: chat 3 got it, and is listed as dropped"],
        ),
        (
            evidence(REACHED, SENT, promised=["main", "b"]),
            ["the broadcast b was started by its command, and never began"],
        ),
        (evidence(REACHED, SENT, sent=BOTH[:1]), ["the broadcast b never began, and has sent messages"]),
        (
            evidence(REACHED, SENT, others=OTHER, sent=BOTH[:1]),
            [f"broadcast b: chat {FIRST + 1} has not got the message, and is not listed"],
        ),
    ],
)
def test_wrong_broadcasts_are_found(found: Evidence, sentences: list[str]) -> None:
    assert [str(each) for each in [*broadcast.lost(found), *broadcast.wrong(found)]] == sentences
    assert not check(found).is_clean


def test_messages_of_the_main_broadcast() -> None:
    calls = [
        {"ok": True, "method": "sendMessage", "params": {"text": "news", "chat_id": "7"}},
        {"ok": False, "method": "sendMessage", "params": {"text": "news", "chat_id": "8"}},
        {"ok": True, "method": "sendMessage", "params": {"text": "5.0", "chat_id": "9"}},
    ]
    assert messages_of_broadcast(calls) == {7: 1}
