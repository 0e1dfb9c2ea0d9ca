"""One simulated bot: its updates, its calls and their effects, and whether it answers each chat in order."""

import asyncio
import re
import time
from collections import Counter, defaultdict, deque
from typing import Any

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from chatlanes.telegram.methods import METHODS
from chatlanes_sandbox.simulator.calls.chats import Chats
from chatlanes_sandbox.simulator.calls.files import FileStore
from chatlanes_sandbox.simulator.calls.params import Params, RefusedError, parameters_of, whole
from chatlanes_sandbox.simulator.faults import Fault
from chatlanes_sandbox.simulator.stream import StreamPlan, Update, run_stream
from chatlanes_sandbox.simulator.updates import (
    WEBHOOK_ACTIVE,
    WEBHOOK_SET,
    GetUpdatesConflictError,
    Gone,
    LongPolls,
    PendingUpdates,
)
from chatlanes_sandbox.simulator.webhook import USUAL_CONNECTIONS, Disorder, Webhook, webhook_from

#: Fields of getMe that are true, and those that are false.
CAN = ("can_join_groups", "can_read_all_group_messages", "supports_inline_queries")
CANNOT = (
    *("can_connect_to_business", "has_main_web_app", "has_topics_enabled", "allows_users_to_create_topics"),
    *("can_manage_bots", "supports_guest_queries", "supports_join_request_queries"),
)
#: Methods that are not carried out in the answer to a webhook: they would end what sends it.
OF_DELIVERY = frozenset({"getUpdates", "setWebhook", "deleteWebhook"})
_NUMBER = re.compile(r"#(\d+)")
#: The answers of a chat that are kept for inspection.
KEPT_PER_CHAT = 10_000


class AnswerOrder:
    """The answers of all chats: repeated, out of order and missing, by the first number after a `#` in their text.
    Answers without one do not count. A number is repeated if it is among the last that are kept of its chat.
    """

    def __init__(self) -> None:
        self._numbers: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=KEPT_PER_CHAT))
        self._highest: defaultdict[str, int] = defaultdict(lambda: -1)
        self._total = self._late = self._duplicates = 0

    def add(self, method: str, params: dict[str, Any]) -> None:
        """Count a call that took effect, if it is an answer."""
        found = _NUMBER.search(str(params.get("text", ""))) if method == "sendMessage" else None
        if not found:
            return
        chat, number = str(params["chat_id"]), int(found[1])
        if number > self._highest[chat]:
            self._highest[chat] = number
        elif number in self._numbers[chat]:
            self._duplicates += 1
        else:
            self._late += 1
        self._total += 1
        self._numbers[chat].append(number)

    def summary(self) -> dict[str, Any]:
        return {
            "total": self._total,
            "chats": len(self._numbers),
            "in_order": self._late == 0,
            "out_of_order": self._late,
            "duplicates": self._duplicates,
        }

    def numbers(self) -> dict[str, list[int]]:
        """The numbers answered in each chat, in order of arrival."""
        return {chat: list(numbers) for chat, numbers in self._numbers.items()}


#: The last calls that are kept for inspection, and those of them with their results.
KEPT_CALLS = 200_000
KEPT_RESULTS = 10_000


class SimulatedBot:
    """The state of one token. `reset` restores the initial state."""

    def __init__(self, token: str, *, quirks: bool = True, first_update_id: int = 1) -> None:
        self.token = token
        self._first_update_id = first_update_id
        self._quirks = quirks
        self._streaming: asyncio.Task[None] | None = None
        self._stream_plan: StreamPlan | None = None
        self._begin()

    def _begin(self) -> None:
        self.updates = PendingUpdates(self._first_update_id)
        self.polls = LongPolls(self.updates, quirks=self._quirks)
        self.faults: list[Fault] = []
        self.files = FileStore()
        self.chats = Chats(self.user(), self.files)
        self.answers = AnswerOrder()
        self.webhook: Params = {}
        self.disorder = Disorder()
        self._sending: Webhook | None = None
        self.calls: deque[dict[str, Any]] = deque(maxlen=KEPT_CALLS)
        self.calls_received = 0
        self.call_counts: Counter[str] = Counter()

    def reset(self) -> None:
        self.stop_stream()
        self._end_sending()
        self.polls.wake()
        self._begin()

    def user(self) -> dict[str, Any]:
        """The bot as the sender of its messages."""
        bot_id = int(self.token.partition(":")[0])
        return {"id": bot_id, "is_bot": True, "first_name": "Simulated", "username": "simulated_bot"}

    def me(self) -> dict[str, Any]:
        return {**self.user(), **dict.fromkeys(CAN, True), **dict.fromkeys(CANNOT, False)}

    # ── the bot's calls ──

    #: Each call for an update takes this long.
    slow_s = 0.0

    async def get_updates(self, params: Params, gone: Gone) -> list[bytes]:
        """Raises GetUpdatesConflictError."""
        if self.webhook:
            raise GetUpdatesConflictError(f"Conflict: {WEBHOOK_ACTIVE}")
        return await self.polls.get(params, gone)

    def received(self, method: str, params: Params, update: str | None = None) -> dict[str, Any]:
        """Record a call when it arrives, with the update that it is for if the caller names it. `ok` becomes True when
        the call has taken effect; then it has its `result`, and its `error` if it was refused.
        """
        self.call_counts[method] += 1
        call = {"at": time.time(), "method": method, "params": params, "ok": False}
        if update is not None:
            call["update"] = update
        if method != "getUpdates":
            self.calls_received += 1
            call["number"] = self.calls_received
            self.calls.append(call)
            if len(self.calls) > KEPT_RESULTS:
                self.calls[-1 - KEPT_RESULTS].pop("result", None)
        return call

    def carry_out(self, call: dict[str, Any]) -> Any:
        """The result of a call of any method but getUpdates. Raises RefusedError."""
        method, params = call["method"], call["params"]
        match method:
            case "getMe":
                return self.me()
            case "setWebhook":
                return self._set_webhook(params)
            case "deleteWebhook":
                return self._set_webhook({**params, "url": ""})
            case "getWebhookInfo":
                return self._webhook_info()
        done = self.chats.call(method, params)
        self.answers.add(method, params)
        return done

    def _set_webhook(self, params: Params) -> bool:
        """Accepts any address; the public server accepts only https and some ports."""
        self._end_sending()
        self.webhook = params if params.get("url") else {}
        if str(params.get("drop_pending_updates", "")).lower() in {"true", "1"}:
            self.updates.forget_all()
        if self.webhook:
            self.polls.allow(params.get("allowed_updates"))
            self.polls.terminate(WEBHOOK_SET)
            self._sending = webhook_from(self.webhook, self._connections(), self.updates, self._replied, self.disorder)
        return True

    async def _replied(self, kind: str, body: bytes) -> None:
        """Carry out the call in the answer to a webhook, if there is one. The bot does not get its result."""

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        scope = {"type": "http", "method": "POST", "query_string": b"", "headers": [(b"content-type", kind.encode())]}
        try:
            params = await parameters_of(Request(scope, receive), self.files)
        except (ValueError, MultiPartException, HTTPException):
            return
        method = METHODS.get(str(params.pop("method", "")).lower())
        if method is None or method in OF_DELIVERY:
            return
        call = self.received(method, params)
        try:
            call["result"] = self.carry_out(call)
            call["ok"] = True
        except RefusedError as refused:
            call["error"] = str(refused)

    def _connections(self) -> int:
        return whole(self.webhook, "max_connections", USUAL_CONNECTIONS)

    def _end_sending(self) -> None:
        if self._sending:
            self._sending.end()
            self._sending = None

    def _webhook_info(self) -> dict[str, Any]:
        info = {
            "url": self.webhook.get("url", ""),
            "has_custom_certificate": "certificate" in self.webhook,
            "pending_update_count": len(self.updates),
        }
        if self.webhook:
            info |= {"max_connections": self._connections(), "ip_address": "127.0.0.1"}
        if self._sending and self._sending.last_error:
            info["last_error_date"], info["last_error_message"] = self._sending.last_error
        if self.updates.allowed is not None:
            info["allowed_updates"] = self.updates.allowed
        return info

    # ── its users' actions ──

    def write(
        self, chat_id: int, user_id: int, content: dict[str, Any], *, is_ephemeral: bool = False
    ) -> Update | None:
        """A user writes a message. Returns the update; None if the bot does not receive messages."""
        return self._given({"message": self.chats.written(chat_id, user_id, content, is_ephemeral=is_ephemeral)})

    def press_button(self, chat_id: int, user_id: int, message_id: int, button: str) -> Update | None:
        """A user presses a button. Raises ValueError if the message does not have it."""
        return self._given({"callback_query": self.chats.pressed(chat_id, user_id, message_id, button)})

    def press_stop(self, chat_id: int, thread: int = 0) -> Update | None:
        """A user presses the Stop button of a draft. Raises ValueError if there is none."""
        return self._given({"stopped_message_generation": self.chats.stopped(chat_id, thread)})

    def _given(self, update: Update) -> Update | None:
        [update_id] = self.deliver([update])
        return None if update_id is None else {"update_id": update_id, **update}

    def deliver(self, updates: list[Update]) -> list[int | None]:
        """Deliver new updates. Returns their ids, None for those that were dropped."""
        for update in updates:
            self.chats.receive(update)
        return self._announced([self.updates.add(update) for update in updates])

    def deliver_raw(self, bodies: list[Any]) -> list[int | None]:
        return self._announced([self.updates.add_raw(body) for body in bodies])

    def _announced(self, ids: list[int | None]) -> list[int | None]:
        self.polls.wake()
        if self._sending:
            for update_id, body in self.updates.newest(sum(update_id is not None for update_id in ids)):
                self._sending.take(update_id, body)
        return ids

    def disturb(self, disorder: Disorder) -> None:
        """For this webhook and later ones."""
        self.disorder = disorder
        if self._sending:
            self._sending.disturb(disorder)

    def start_stream(self, plan: StreamPlan) -> None:
        """Replaces the current stream, if any."""
        self.stop_stream()
        self._stream_plan = plan
        self._streaming = asyncio.get_running_loop().create_task(run_stream(plan, self.deliver))

    def stop_stream(self) -> None:
        if self._streaming:
            self._streaming.cancel()
            self._streaming = None

    def stats(self) -> dict[str, Any]:
        return {
            "pending": len(self.updates),
            "added": self.updates.added,
            "dropped": self.updates.dropped,
            "confirmed": self.updates.confirmed,
            "offset": self.polls.last_offset,
            "polls": self.polls.received,
            "conflicts": self.polls.conflicts,
            "calls": dict(self.call_counts),
            "answers": self.answers.summary(),
            "faults": len(self.faults),
            "webhook": self._sending.tally() if self._sending else {},
            "streaming": self._is_streaming(),
        }

    def _is_streaming(self) -> bool:
        return bool(self._streaming and not self._streaming.done())

    def stream_shown(self) -> dict[str, Any] | None:
        """The current stream: its updates per second and its chats. None: there is none."""
        plan = self._stream_plan
        return {"rate": plan.rate, "chats": plan.chats} if plan and self._is_streaming() else None
