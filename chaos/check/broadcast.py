"""Checks a broadcast: Telegram has got the message of each recipient once, or it is listed; nobody got it twice."""

from __future__ import annotations

from collections import Counter

from chaos.check.violation import Violation
from chaos.evidence.records import Evidence


def lost(evidence: Evidence) -> list[Violation]:
    """Recipients without a message that are not listed, and results that do not add up."""
    found = [
        Violation(f"chat {chat} has not got the message of the broadcast, and is not listed", ())
        for chat in range(1, evidence.recipients + 1)
        if chat not in evidence.broadcast_messages and chat not in evidence.missed
    ]
    listed = Counter(evidence.missed.values())
    counted = {reason: count for reason, count in evidence.results.items() if reason != "sent"}
    if listed != counted or sum(evidence.results.values()) != evidence.recipients:
        found.append(Violation(f"the broadcast counts {evidence.results}, and lists {dict(listed)}", ()))
    return found


def wrong(evidence: Evidence) -> list[Violation]:
    """Recipients that got the message twice, or that are listed with a certain reason and got it."""
    twice = [chat for chat, count in evidence.broadcast_messages.items() if count > 1]
    certain = [chat for chat, reason in evidence.missed.items() if reason != "uncertain"]
    return [
        *(Violation(f"chat {chat} got the message of the broadcast twice", ()) for chat in twice),
        *(
            Violation(f"chat {chat} got the message of the broadcast, and is listed as {evidence.missed[chat]}", ())
            for chat in certain
            if chat in evidence.broadcast_messages
        ),
    ]
