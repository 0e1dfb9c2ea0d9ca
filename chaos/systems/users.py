"""The users of the agents in a chaos run: each has a chat of its own, orders, answers the question or not, and some say
/stop at a random moment. The same seed gives the same plans; when a question comes depends on the run.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from chaos.systems import agents
from chatlanes_sandbox.simulator import Simulator

STEP_S = 0.25
#: How users answer a question, and how often: a button, the same button twice, a text, not at all.
ANSWERS = {"press": 4, "press twice": 2, "text": 2, "none": 2}
LONGEST_ANSWER_S = 2.0
#: How many users stop their agent, within which time after the order.
STOPPING, LONGEST_STOP_S = 0.35, 4.0
#: How many additions a user may send to an order, within which time.
ADDITIONS, LONGEST_ADDITION_S = 2, 1.5

Update = dict[str, Any]


@dataclass
class Conversation:
    """One user and one agent. `order`, `additions` and `stop` are ids of updates; `updates` has those of all that the
    user sent.
    """

    chat: int
    order: int
    stop: int | None = None
    updates: list[int] = field(default_factory=list)
    additions: list[int] = field(default_factory=list)


class Users(threading.Thread):
    """They begin conversations at a constant rate, until `end_new`; the last ones are answered until `end`. If the bot
    can be steered, they send additions.
    """

    def __init__(self, telegram: Simulator, seed: int, rate: float, *, can_steer: bool = False) -> None:
        super().__init__(name="users", daemon=True)
        self.conversations: list[Conversation] = []
        self._telegram = Simulator(telegram.url, telegram.token)  # a session for this thread
        self._chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._rate, self._last_call = rate, 0
        self._additions = ADDITIONS if can_steer else 0
        self._due: list[tuple[float, int, Conversation, Update]] = []
        self._planned = 0
        self._asked: set[str] = set()
        self._no_more, self._ended = threading.Event(), threading.Event()

    def run(self) -> None:
        began_s = time.monotonic()
        while not self._ended.wait(STEP_S):
            while not self._no_more.is_set() and len(self.conversations) < (time.monotonic() - began_s) * self._rate:
                self._begin(agents.FIRST_CHAT + len(self.conversations))
            self._read_questions()
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, conversation, update = heapq.heappop(self._due)
                number = self._send(conversation, update)
                match update.get("message", {}).get("text"):
                    case agents.STOP:
                        conversation.stop = number
                    case agents.ADDITION:
                        conversation.additions.append(number)

    def end_new(self) -> None:
        self._no_more.set()

    def end(self) -> None:
        self._ended.set()
        self.join()

    def _begin(self, chat: int) -> None:
        conversation = Conversation(chat, 0)
        conversation.order = self._send(conversation, _says(chat, agents.ORDER))
        self.conversations.append(conversation)
        for _ in range(self._chance.randint(0, self._additions)):
            self._plan(self._chance.uniform(0, LONGEST_ADDITION_S), conversation, _says(chat, agents.ADDITION))
        if self._chance.random() < STOPPING:
            self._plan(self._chance.uniform(0, LONGEST_STOP_S), conversation, _says(chat, agents.STOP))

    def _read_questions(self) -> None:
        calls = self._telegram.calls("sendMessage", after=self._last_call)
        for call in calls:
            self._last_call = call["number"]
            rows = (call["params"].get("reply_markup") or {}).get("inline_keyboard") if call["ok"] else None
            if rows and (data := rows[0][0]["callback_data"]) not in self._asked:
                self._asked.add(data)
                self._plan_answer(call["result"], data)

    def _plan_answer(self, sent: Update, data: str) -> None:
        chat = sent["chat"]["id"]
        conversation = self.conversations[chat - agents.FIRST_CHAT]
        after_s = self._chance.uniform(0, LONGEST_ANSWER_S)
        match self._chance.choices([*ANSWERS], [*ANSWERS.values()])[0]:
            case "text":
                self._plan(after_s, conversation, _says(chat, agents.YES))
            case "press":
                self._plan(after_s, conversation, _presses(chat, sent, data))
            case "press twice":
                self._plan(after_s, conversation, _presses(chat, sent, data))
                self._plan(after_s + self._chance.random(), conversation, _presses(chat, sent, data))

    def _plan(self, after_s: float, conversation: Conversation, update: Update) -> None:
        self._planned += 1
        heapq.heappush(self._due, (time.monotonic() + after_s, self._planned, conversation, update))

    def _send(self, conversation: Conversation, update: Update) -> int:
        [number] = self._telegram.push(update)
        assert number is not None  # noqa: S101 - every kind is allowed
        conversation.updates.append(number)
        return number


def _says(chat: int, text: str) -> Update:
    sender = {"id": chat, "is_bot": False, "first_name": f"User {chat}"}
    head = {"message_id": 1, "from": sender, "chat": {"id": chat, "type": "private"}, "date": int(time.time())}
    return {"message": {**head, "text": text}}


def _presses(chat: int, sent: Update, data: str) -> Update:
    sender = {"id": chat, "is_bot": False, "first_name": f"User {chat}"}
    query = {"id": f"{chat}", "from": sender, "chat_instance": "1", "message": sent, "data": data}
    return {"callback_query": query}
