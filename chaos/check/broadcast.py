"""Checks the broadcasts. Every recipient of each one that has started got its message, or is listed. One whose command
was killed has started as a whole, or not at all. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from chaos.check.violation import Violation
from chaos.evidence.records import BroadcastFindings, Evidence
from chaos.systems.broadcast import FIRST, KIND


def lost(evidence: Evidence) -> list[Violation]:
    """Recipients without a message that are not listed, results that do not add up, and broadcasts that never began."""
    never = [each for each in evidence.promised if each not in evidence.broadcasts]
    found = [Violation(f"the broadcast {each} was started by its command, and never began", ()) for each in never]
    for id_, each in evidence.broadcasts.items():
        found += [Violation(f"broadcast {id_}: {problem}", ()) for problem in _lost(evidence, id_, each)]
    return found


def _lost(evidence: Evidence, id_: str, broadcast: BroadcastFindings) -> Iterator[str]:
    first, reached = 1 if id_ == evidence.main_broadcast else FIRST, _reached(evidence, id_)
    for chat in range(first, first + broadcast.total):
        if chat not in reached and chat not in broadcast.missed:
            yield f"chat {chat} has not got the message, and is not listed"
    listed = Counter(broadcast.missed.values())
    counted = {reason: count for reason, count in broadcast.counts.items() if reason != "sent"}
    if listed != counted or sum(broadcast.counts.values()) != broadcast.total:
        yield f"its results are {dict(broadcast.counts)}, and it lists {dict(listed)}"


def wrong(evidence: Evidence) -> list[Violation]:
    """Recipients of the main one that got the message twice; recipients that are listed with a certain reason and got
    it; and messages of broadcasts that never began. Those that the handler of the others repeats are judged as those of
    updates (repeated_messages.py).
    """
    twice = [chat for chat, count in evidence.news.items() if count > 1]
    found = [f"chat {chat} got the message of the main broadcast twice" for chat in twice]
    for id_, each in evidence.broadcasts.items():
        may_have_called = ("uncertain",) if id_ == evidence.main_broadcast else ("uncertain", "failed")
        reached = _reached(evidence, id_)
        certain = [chat for chat, reason in each.missed.items() if reason not in may_have_called and chat in reached]
        found += [f"broadcast {id_}: chat {chat} got it, and is listed as {each.missed[chat]}" for chat in certain]
    sent = {text.partition(" ")[0] for text in evidence.messages(KIND)}
    found += [f"the broadcast {each} never began, and has sent messages" for each in sent - evidence.broadcasts.keys()]
    return [Violation(text, ()) for text in found]


def _reached(evidence: Evidence, id_: str) -> Mapping[int, int]:
    """How many messages each chat has got."""
    if id_ == evidence.main_broadcast:
        return evidence.news
    texts = (text.split() for text in evidence.messages(KIND).elements())
    return Counter(int(chat) for of, chat in texts if of == id_)
