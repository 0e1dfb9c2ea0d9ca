"""Starts a simulator in a process of its own, and controls it."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import requests

from celery_lanes.embedded_server import HOST, terminate_with_parent
from chatlanes_sandbox.simulator.calls.chats import id_of

#: The names under which a browser on this machine may use the servers. Another name is DNS rebinding.
NAMES = frozenset({HOST, "localhost", "[::1]"})
#: Printed before its address as soon as it answers.
READY = "simulator listening on "
#: It exits at once on SIGTERM; one that a test has frozen is killed.
STOP_WITHIN_S = 10.0
CALL_TIMEOUT_S = 30.0
#: The pause between two looks for messages of the bot.
WAIT_S = 0.01
BLOCKS = "`sent` blocks the event loop that calls it; for a bot in the same loop: await asyncio.to_thread(….sent)."

#: The user who writes and presses if no other one is named, and their private chat.
ANN = 7

Update = dict[str, Any]


class SimulatorFailedError(RuntimeError):
    """It did not start, or refused a request."""


class NotSentError(AssertionError):
    """The bot has not sent the expected messages; the text says what it has done."""


class Simulator:
    """A running simulator, controlled over HTTP. Every method is one short request, except `sent`, which waits."""

    def __init__(self, url: str, token: str, process: subprocess.Popen[str] | None = None) -> None:
        self.url = url
        self.token = token
        self.process = process
        self._session = requests.Session()
        self._session.trust_env = False  # proxies do not apply on this machine
        #: The numbers of the calls that `sent` has returned.
        self._returned: set[int] = set()

    def write(
        self,
        text: str = "",
        *,
        chat_id: int = ANN,
        user_id: int | None = None,
        message: Update | None = None,
        ephemeral: bool | None = None,
    ) -> Update | None:
        """The user 7, or that of another private chat, writes to the bot; a group, below 0, needs a `user_id`.
        `message` has more fields of the Message, such as a photo; an ephemeral one, in a group, is seen by its writer
        and the bot. Returns the update; None if the bot does not receive messages.
        """
        fields = {"chat_id": chat_id, "text": text, "user_id": user_id, "message": message, "ephemeral": ephemeral}
        return self._control("messages", fields)

    def press(self, sent: Mapping[str, Any], button: str, *, user_id: int | None = None) -> Update | None:
        """A user presses a button of a message that `sent` has returned, named by its text or its callback_data. That
        of an ephemeral message is pressed by its receiver.
        """
        message = sent["result"]
        where = {"chat_id": message["chat"]["id"], "message_id": id_of(message)}
        user_id = user_id or message.get("receiver_user", {}).get("id")
        return self._control("presses", {**where, "button": button, "user_id": user_id})

    def drafts(self) -> list[dict[str, Any]]:
        """The drafts that are shown now: {chat_id, message_thread_id, draft_id, text or rich_message, can_stop,
        ends_in_s}.
        """
        return list(self._get("drafts"))

    def press_stop(self, chat_id: int = ANN, *, message_thread_id: int | None = None) -> Update | None:
        """A user presses the Stop button of a draft. Returns the update; None if the bot does not receive it."""
        return self._control("stops", {"chat_id": chat_id, "message_thread_id": message_thread_id})

    def push_examples(self, *names: str, chat_id: int = ANN, user_id: int | None = None) -> dict[str, int | None]:
        """Deliver an update of each kind, or of those named. Returns their ids by name, None for a dropped update."""
        return dict(self._control("examples", {"chat_id": chat_id, "user_id": user_id, "names": list(names) or None}))

    def sent(self, count: int = 1, *, method: str | None = None, timeout_s: float = 5.0) -> list[dict[str, Any]]:
        """The next `count` messages of the bot, in order, as soon as it has sent them; with `method`, the next calls of
        that method. Each is {number, at, method, params, ok, result}, and is returned once. Raises NotSentError.
        """
        give_up_at = time.monotonic() + timeout_s
        while True:
            calls = self.calls(method) if method else self._get("messages")
            found = [call for call in calls if call["ok"] and call["number"] not in self._returned][:count]
            if len(found) == count:
                self._returned.update(call["number"] for call in found)
                return found
            if time.monotonic() > give_up_at:
                what = f"calls of {method}" if method else "messages"
                raise NotSentError(f"{len(found)} of {count} {what} in {timeout_s:g} s. {self._explained()}")
            time.sleep(WAIT_S)

    def _explained(self) -> str:
        """The calls of the bot so far."""
        stats = self.stats()
        refused = [f"{call['method']} was refused: {call['error']}" for call in self.calls() if "error" in call]
        if not stats["polls"] and not stats["webhook"]:
            fetched = (
                f"The bot has fetched no updates: it needs the address {self.url} and the token {self.token}; "
                "or its polling has ended with an error, which is in its log."
            )
        else:
            fetched = f"The bot has called {', '.join(stats['calls'])}; {stats['pending']} updates wait."
        return " ".join([fetched, *refused, BLOCKS if _is_in_event_loop() else ""]).rstrip()

    def push(self, *updates: Update) -> list[int | None]:
        """Deliver updates, with ids of their own or the next ones. Returns the ids, None for a dropped update."""
        return list(self._post("updates", list(updates)))

    def push_raw(self, *bodies: Any) -> list[int | None]:
        """The same for any JSON values, which are delivered unchanged."""
        return list(self._post("updates", {"raw": list(bodies)}))

    def fault(self, **fields: Any) -> None:
        """The next calls fail; the fields are those of faults.Fault."""
        self._post("faults", fields)

    def stream(self, **plan: Any) -> None:
        """Start a stream of updates; the fields are those of stream.StreamPlan."""
        self._post("stream", plan)

    def stop_stream(self) -> None:
        self._post("stream", {"stop": True})

    def disturb(self, **disorder: Any) -> None:
        """Delay and repeat updates sent to the webhook; the fields are those of webhook.Disorder."""
        self._post("webhook", disorder)

    def reset(self) -> None:
        """Back to the beginning."""
        self._post("reset", {})
        self._returned.clear()

    def calls(self, method: str | None = None, *, after: int = 0) -> list[dict[str, Any]]:
        """Every call but getUpdates and the first `after`: {number, at (unix seconds), method, params, ok (it took
        effect), result, error (Telegram's refusal)}.
        """
        return list(self._get("calls", {"after": str(after), **({"method": method} if method else {})}))

    def stats(self) -> dict[str, Any]:
        return dict(self._get("stats"))

    def answers(self) -> dict[int, list[int]]:
        """Per chat, the numbers (`#<n>`) of the answered updates, in order."""
        return {int(chat): numbers for chat, numbers in self._get("answers").items()}

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Repeated calls are harmless."""
        self._session.close()
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for end in (self.process.stdin, self.process.stdout):
            if end:
                end.close()

    def _control(self, path: str, fields: Mapping[str, Any]) -> Any:
        return self._post(path, {name: value for name, value in fields.items() if value is not None})

    def _post(self, path: str, body: Any) -> Any:
        return self._read(self._session.post(f"{self.url}/control/{path}", json=body, timeout=CALL_TIMEOUT_S))

    def _get(self, path: str, query: dict[str, str] | None = None) -> Any:
        return self._read(self._session.get(f"{self.url}/control/{path}", params=query, timeout=CALL_TIMEOUT_S))

    def _read(self, response: requests.Response) -> Any:
        if not response.ok:
            raise SimulatorFailedError(f"the simulator answers {response.status_code}: {response.text}")
        return response.json()

    def __enter__(self) -> "Simulator":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def start(
    token: str = "1:TEST",  # noqa: S107 - made up
    port: int = 0,
    *,
    quirks: bool = True,
    first_update_id: int = 1,
    page: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Simulator:
    """Start one and wait until it answers; `port` 0 takes a free one. With `page` it serves the page too, and stores
    its chats in that file. On Linux it ends with the thread that calls this. Raises SimulatorFailedError.
    """
    command = [sys.executable, "-m", "chatlanes_sandbox.simulator", "--port", str(port), "--token", token]
    command += ["--first-update-id", str(first_update_id), *([] if quirks else ["--no-quirks"])]
    command += ["--page", str(page)] if page else []
    # In a session of its own: Ctrl-C in a terminal must not end it before the processes that call it.
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE if page else None,  # the supervisor's channel to the page
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
        preexec_fn=terminate_with_parent(),
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    line = process.stdout.readline()
    if not line.startswith(READY):
        process.stdout.close()
        raise SimulatorFailedError(f"the simulator ended with code {process.wait()}")
    return Simulator(line.removeprefix(READY).strip(), token, process)
