"""Generated conversations in several chats, for demonstrations and load.

The same seed gives the same updates. Every update contains `#<n>`, where n counts the updates of its chat, so that
answers with that number can be checked.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

#: Updates are handed over in steps this far apart, however high the rate.
STEP_S = 0.02
#: The id of a supergroup is this less its number.
SUPERGROUPS = -1_000_000_000_000
#: One of this many chats is a group of several users.
GROUP_EVERY = 4
MEMBERS = 5
WORDS = ["hello", "how much is it", "two, please", "thanks", "is anyone there", "see you tomorrow", "🙂"]
COMMANDS = ["/start", "/help", "/status"]

Update = dict[str, Any]


@dataclass(frozen=True)
class StreamPlan:
    """The size and rate of a stream.

    chats       number of chats, their ids from `first_chat` upward (groups: as far below zero)
    rate        updates per second, over all chats; 0: all at once
    total       updates; 0: without end
    seed        another one gives other updates
    """

    chats: int = 10
    rate: float = 50.0
    total: int = 0
    seed: int = 0
    first_chat: int = 1001

    def __post_init__(self) -> None:
        if self.chats < 1 or self.rate < 0 or self.total < 0:
            raise ValueError("chats must be at least 1, rate and total at least 0")
        if not self.rate and not self.total:
            raise ValueError("a stream without end needs a rate")


def conversations(plan: StreamPlan) -> Iterator[Update]:
    """Updates without update_id, of a chat chosen at random each time, without end."""
    chance = random.Random(plan.seed)  # noqa: S311 - a demonstration, not a secret
    counts = [0] * plan.chats
    while True:
        place = chance.randrange(plan.chats)
        counts[place] += 1
        yield _update(*_people(plan.first_chat, place, chance), counts[place], chance)


def _update(user: Update, chat: Update, number: int, chance: random.Random) -> Update:
    """Mostly messages; of every ten updates one is a command, one a button, one an edit."""
    text = f"{chance.choice(WORDS)} #{number}"
    match chance.randrange(10):
        case 0:
            command = chance.choice(COMMANDS)
            entities = [{"type": "bot_command", "offset": 0, "length": len(command)}]
            return {"message": {**_message(user, chat, number, f"{command} #{number}"), "entities": entities}}
        case 1:
            return {"callback_query": _button(user, chat, number)}
        case 2 if number > 1:
            edited = _message(user, chat, number - 1, text)
            return {"edited_message": {**edited, "edit_date": edited["date"]}}
        case _:
            return {"message": _message(user, chat, number, text)}


def _people(first_chat: int, place: int, chance: random.Random) -> tuple[Update, Update]:
    """A user and a chat."""
    first_user = first_chat + place * MEMBERS
    if place % GROUP_EVERY == GROUP_EVERY - 1:
        group = {"id": SUPERGROUPS - first_user, "type": "supergroup", "title": f"Group {place}"}
        return _user(first_user + chance.randrange(MEMBERS)), group
    person = _user(first_user)
    return person, {"id": person["id"], "type": "private", "first_name": person["first_name"]}


def _user(user_id: int) -> Update:
    return {"id": user_id, "is_bot": False, "first_name": f"User {user_id}", "language_code": "en"}


def _message(user: Update, chat: Update, message_id: int, text: str) -> Update:
    return {"message_id": message_id, "from": user, "chat": chat, "date": int(time.time()), "text": text}


def _button(user: Update, chat: Update, number: int) -> Update:
    asked = _message(user, chat, number, "Yes or no?")
    return {
        "id": f"{user['id']}{number:09}",
        "from": user,
        "message": asked,
        "chat_instance": str(chat["id"]),
        "data": f"yes #{number}",
    }


async def run_stream(plan: StreamPlan, deliver: Callable[[list[Update]], object]) -> None:
    """Hand over updates at the plan's rate until its total is reached."""
    life = conversations(plan)
    started_at, sent = time.monotonic(), 0
    while not plan.total or sent < plan.total:
        due = int((time.monotonic() - started_at) * plan.rate) + 1 if plan.rate else plan.total
        count = (min(due, plan.total) if plan.total else due) - sent
        deliver([next(life) for _ in range(count)])
        sent += count
        await asyncio.sleep(STEP_S)
