"""The sandbox's Bot API simulator with timestamps: it records when it sent each update. Its users are independent.

An update's `answered_at` is the monotonic clock of this machine just before the answer to getUpdates is written, so the
latency includes everything after that, from the HTTP answer to the handler. For a webhook it is the time of day at
which the request was due, because it is compared with Redis' clock.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.load.updates import Update, make_update, stamp
from chatlanes_sandbox.simulator.bot import SimulatedBot
from chatlanes_sandbox.simulator.calls.params import Params
from chatlanes_sandbox.simulator.client import READY, Simulator
from chatlanes_sandbox.simulator.server import serve
from chatlanes_sandbox.simulator.stream import StreamPlan
from chatlanes_sandbox.simulator.updates import Gone
from chatlanes_sandbox.simulator.webhook import Address, PostResponse

TOKEN = "1:BENCH"


class StampingBot(SimulatedBot):
    async def get_updates(self, params: Params, gone: Gone) -> list[bytes]:
        bodies = await super().get_updates(params, gone)
        now_s = time.monotonic()
        return [stamp(body, now_s) for body in bodies]

    def start_stream(self, plan: StreamPlan) -> None:
        self.stop_stream()
        self._streaming = asyncio.get_running_loop().create_task(self._arrive(plan))

    async def _arrive(self, plan: StreamPlan) -> None:
        """Delivers single updates at random moments (a Poisson process): users act independently."""
        chance, due_s = random.Random(plan.seed), time.monotonic()
        for update in self._life(plan):
            due_s += chance.expovariate(plan.rate)
            await asyncio.sleep(due_s - time.monotonic())
            self.deliver([update])

    def _life(self, plan: StreamPlan) -> Iterator[Update]:
        """Messages; with a webhook every second update is a button press in the chat of the message before it."""
        for number in range(plan.total):
            update = make_update(
                number, plan.first_chat + (number // 2 if self.webhook else number) % plan.chats, numbered=False
            )
            yield press(update) if self.webhook and number % 2 else update

    def _set_webhook(self, params: Params) -> bool:
        done = super()._set_webhook(params)
        if self._sending:
            self._sending.address = StampingAddress(self._sending.address.url, self._sending.address.headers)
        return done


class StampingAddress(Address):
    async def post(self, body: bytes) -> PostResponse:
        return await super().post(stamp(body, time.time()))


def press(update: Update) -> Update:
    """The update as a button press in its chat: Telegram sends these through a different queue than messages."""
    message = update["message"]
    pressed = {"id": "1", "from": message["from"], "message": message, "chat_instance": "1", "data": "yes"}
    return {"callback_query": pressed, "answered_at": update["answered_at"]}


def start() -> Simulator:
    """Starts the simulator in its own process, on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.load.simulator"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(READY):
        raise RuntimeError(f"the simulator ended with code {process.wait()}")
    return Simulator(line.removeprefix(READY).strip(), TOKEN, process)


if __name__ == "__main__":
    serve(StampingBot(TOKEN), 0)
