"""Checks whether a bot answers each chat in order.

Reports repeated, out-of-order and missing answers, by the first number after a `#` in their text. Answers without one
do not count.
"""

import re
from collections import defaultdict, deque
from typing import Any

_NUMBER = re.compile(r"#(\d+)")
#: The answers of a chat that are kept for inspection.
KEPT_PER_CHAT = 10_000


class ChatAnswers:
    """The numbers answered in one chat."""

    def __init__(self) -> None:
        self.numbers: deque[int] = deque(maxlen=KEPT_PER_CHAT)
        self.duplicates = 0
        self.late = 0
        self._highest = 0
        #: Numbers below the highest without an answer. An answer to one of them is late; to another, a duplicate.
        self._skipped: set[int] = set()

    def add(self, number: int) -> None:
        self.numbers.append(number)
        if number > self._highest:
            self._skipped.update(range(self._highest + 1, number))
            self._highest = number
        elif number in self._skipped:
            self._skipped.remove(number)
            self.late += 1
        else:
            self.duplicates += 1


class AnswerOrder:
    """The answers of all chats."""

    def __init__(self) -> None:
        self.chats: defaultdict[str, ChatAnswers] = defaultdict(ChatAnswers)
        self.total = 0

    def add(self, method: str, params: dict[str, Any]) -> None:
        """Count a call that took effect, if it is an answer."""
        found = _NUMBER.search(str(params.get("text", ""))) if method == "sendMessage" else None
        if found:
            self.total += 1
            self.chats[str(params["chat_id"])].add(int(found[1]))

    def summary(self) -> dict[str, Any]:
        late = sum(chat.late for chat in self.chats.values())
        duplicates = sum(chat.duplicates for chat in self.chats.values())
        return {
            "total": self.total,
            "chats": len(self.chats),
            "in_order": late == 0,
            "out_of_order": late,
            "duplicates": duplicates,
        }

    def numbers(self) -> dict[str, list[int]]:
        """The numbers answered in each chat, in order of arrival."""
        return {chat: list(answers.numbers) for chat, answers in self.chats.items()}
