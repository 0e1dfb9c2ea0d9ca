"""`async def` handlers: one event loop for all of them, calls in order, no calls left behind."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from chatlanes.bot import Bot, Context, UpdateTimeoutError, current
from chatlanes.bot.event_loop import Awaited, event_loop
from chatlanes.bot.loader import is_fully_async, load_bot
from chatlanes.telegram.errors import BadRequest
from tests.support.waiting import until

UPDATE = {"update_id": 5, "message": {"message_id": 1, "chat": {"id": 7, "type": "private"}, "text": "hi"}}


class CountingApi:
    """Records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.refused = ""
        self.gate = threading.Event()
        self.gate.set()

    def call(self, method: str, /, **params: Any) -> Any:
        assert self.gate.wait(60)
        self.calls.append((method, params.get("text")))
        if params.get("text") == self.refused:
            raise BadRequest(method, 7, "no")
        return {"text": params.get("text")}


Load = Callable[[str], Bot]
Run = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Returns a function that loads a bot from source."""
    monkeypatch.chdir(tmp_path)

    def load(source: str) -> Bot:
        name = f"bot_{abs(hash(source))}"
        (tmp_path / f"{name}.py").write_text("import asyncio\n" + textwrap.dedent(source))
        return load_bot(f"{name}:handle")

    return load


@pytest.fixture
def run(load: Load) -> Run:
    """Runs a handler, given as source, on an update."""
    return lambda source, api=None, deadline_s=None: load(source)(
        Context(UPDATE, api or CountingApi(), deadline_s=deadline_s)
    )


def test_calls_are_awaited(run: Run) -> None:
    api = CountingApi()
    source = "async def handle(ctx):\n    sent = await ctx.reply('a')\n    return [sent, ctx.chat_id, ctx.text]"
    assert run(source, api) == [{"text": "a"}, 7, "hi"]
    assert api.calls == [("sendMessage", "a")]


def test_unawaited_calls_end_before_the_handler(run: Run) -> None:
    api = CountingApi()
    run("async def handle(ctx):\n    ctx.reply('a')\n    ctx.call('sendDice', chat_id=7)", api)
    assert sorted(api.calls) == [("sendDice", None), ("sendMessage", "a")]


def test_error_of_an_unawaited_call_is_raised(run: Run) -> None:
    api = CountingApi()
    api.refused = "b"
    with pytest.raises(BadRequest):
        run("async def handle(ctx):\n    ctx.reply('a')\n    ctx.reply('b')", api)
    assert sorted(api.calls) == [("sendMessage", "a"), ("sendMessage", "b")]


def test_caught_error_is_not_raised_again(run: Run) -> None:
    api = CountingApi()
    api.refused = "b"
    source = """
        async def handle(ctx):
            results = await asyncio.gather(ctx.reply('a'), ctx.reply('b'), return_exceptions=True)
            return [type(each).__name__ for each in results]
        """
    assert run(source, api) == ["dict", "BadRequest"]


def test_handlers_of_a_process_share_one_loop(load: Load) -> None:
    bot = load("""
        loops = set()
        async def handle(ctx):
            loops.add(asyncio.get_running_loop())
            while len(met) < 8:
                met.append(1)
                await asyncio.sleep(0.001)
            return len(loops)
        met = []
        """)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: bot(Context(UPDATE, CountingApi())), range(8))) == {1}


@pytest.mark.parametrize(
    ("hooks", "alone"),
    [("", True), ("on_error=hook", True), ("on_error=plain", False), ("on_error=hook, on_timeout=plain", False)],
)
def test_bot_of_coroutines_needs_no_threads(load: Load, hooks: str, alone: bool) -> None:
    bot = load(f"""
        from chatlanes.bot import Bot
        async def run(ctx): ...
        async def hook(ctx, error=None): ...
        def plain(ctx, error=None): ...
        handle = Bot(run, {hooks})
        """)
    assert is_fully_async(bot) == alone


def test_handler_is_cancelled_at_its_time_limit(run: Run) -> None:
    source = """
        async def handle(ctx):
            try:
                await asyncio.sleep(3600)
            finally:
                ctx.reply('tidied up')
        """
    # The event loop has begun before the time is counted
    run("async def handle(ctx): ...")
    api = CountingApi()
    with pytest.raises(UpdateTimeoutError, match="cancelled"):
        run(source, api, deadline_s=time.monotonic() + 1)
    assert api.calls == [("sendMessage", "tidied up")]


def test_handlers_own_timeout_is_an_ordinary_error(run: Run) -> None:
    with pytest.raises(TimeoutError):
        run(
            "async def handle(ctx):\n    await asyncio.wait_for(asyncio.sleep(3600), 0.01)",
            deadline_s=time.monotonic() + 3600,
        )


def test_current_update_is_known_throughout_the_handler(run: Run) -> None:
    source = """
        from chatlanes.bot import current
        async def deep():
            await asyncio.sleep(0)
            return current().update_id
        async def handle(ctx):
            beside = asyncio.create_task(deep())
            return [await deep(), await beside, await asyncio.to_thread(lambda: current().update_id)]
        """
    assert run(source) == [5, 5, 5]
    with pytest.raises(LookupError, match="inside of a handler"):
        current()


@pytest.mark.parametrize(
    ("ends", "error"),
    [("raise SystemExit(3)", SystemExit), ("asyncio.get_running_loop().stop()", None)],
)
def test_bot_cannot_stop_the_shared_loop(run: Run, ends: str, error: type[BaseException] | None) -> None:
    with pytest.raises(error) if error else nullcontext():
        run(f"async def handle(ctx):\n    {ends}")
    beside = f"""
        async def end():
            {ends}
        async def handle(ctx):
            task = asyncio.create_task(end())
            await asyncio.wait([task])
            task.exception()  # otherwise it is logged at a later garbage collection, possibly during a compilation
        """
    run(beside)
    assert run("async def handle(ctx):\n    await asyncio.sleep(0)\n    return 'continues'") == "continues"


def test_background_tasks_are_detached_unless_the_handler_failed(run: Run) -> None:
    source = """
        import threading
        from chatlanes.bot import current
        async def later(found, ended):
            await asyncio.to_thread(ended.wait)
            try:
                found.append(current().update_id)
            except LookupError:
                found.append(None)
        async def handle(ctx):
            asyncio.create_task(later(ctx.api.found, ctx.api.ended))
            await asyncio.sleep(0)
            if ctx.api.fails:
                raise RuntimeError
        """
    for fails, found in ((False, [None]), (True, [5])):
        api = CountingApi()
        api.found, api.ended, api.fails = [], threading.Event(), fails  # type: ignore[attr-defined]
        with suppress(RuntimeError):
            run(source, api)
        api.ended.set()  # type: ignore[attr-defined]
        until(lambda api=api: api.found)  # type: ignore[misc]
        assert api.found == found  # type: ignore[attr-defined]


def test_session_is_read_outside_the_loop(load: Load) -> None:
    """Waiting for Redis inside the loop would block all other handlers. Only the first run reads it in the loop."""
    bot = load("""
        import threading
        async def handle(ctx):
            read_by.append(ctx.session["read by"])
            return threading.get_ident()
        read_by = []
        """)

    class FakeStored:
        def load(self, key: str) -> bytes:
            return json.dumps({"read by": threading.get_ident()}).encode()

    for _ in range(2):
        loops_thread = bot(Context(UPDATE, CountingApi(), stored=FakeStored()))  # type: ignore[arg-type]
    assert sys.modules[bot.handle.__module__].read_by == [loops_thread, threading.get_ident()]


def test_second_interrupt_waits_for_the_end() -> None:
    # Given a coroutine that takes a moment to clean up, and the main thread waiting for it
    ended = []

    async def deaf() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            # When the pool's time limit strikes while the main thread waits
            await asyncio.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            await asyncio.sleep(0.2)
            ended.append(True)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(InterruptedError):
            event_loop().run(deaf(), limit_s=0.05)
    finally:
        signal.signal(signal.SIGUSR1, before)
    # Then the main thread did not continue before the coroutine had ended
    assert ended == [True]


def test_interrupt_while_waking_the_loop_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a time limit that strikes after a coroutine was queued and before the loop was woken
    begun = []

    async def one() -> str:
        begun.append(True)
        return "ran"

    loop = event_loop()
    wake = loop._loop.call_soon_threadsafe

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(loop._loop, "call_soon_threadsafe", wake)
        interrupt()

    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", interrupted)
    # Then the coroutine never starts
    with pytest.raises(InterruptedError):
        loop.run(one())
    assert begun == []
    # And the next one runs
    assert loop.run(one(), limit_s=30) == "ran"


def interrupt(*_: object) -> None:
    raise InterruptedError


def test_handler_cancelled_before_it_begins_fails() -> None:
    async def cancelled() -> Awaited:
        begun = Awaited(asyncio.sleep(0))
        task = begun.begin(asyncio.get_running_loop())
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()
        await asyncio.wait([task])
        return begun

    begun = asyncio.run(cancelled())
    assert begun.wait(0)
    with pytest.raises(asyncio.CancelledError):
        begun.outcome()


def test_coroutine_is_cancelled_from_another_thread_and_cleans_up() -> None:
    did: list[str] = []
    given: list[Callable[[], object]] = []

    async def handle() -> None:
        try:
            did.append("begun")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            did.append("cleaned up")

    def interrupt() -> None:
        until(lambda: did == ["begun"])
        given[0]()

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(asyncio.CancelledError):
        event_loop().run(handle(), on_interrupt=given.append)
    other.join()
    assert did == ["begun", "cleaned up"]
    # And a late interruption changes nothing
    given[0]()


def test_coroutine_interrupted_before_it_begins_does_not_begin() -> None:
    did: list[str] = []

    async def handle() -> None:
        await asyncio.sleep(0)
        did.append("begun")

    with pytest.raises(asyncio.CancelledError):
        event_loop().run(handle(), on_interrupt=lambda cancel: cancel())
    assert did == []


def test_a_shield_without_interrupts_does_nothing(run: Run) -> None:
    api = CountingApi()
    source = """
    async def handle(ctx):
        async with ctx.shield():
            with ctx.shield():
                await ctx.reply(f"{ctx.interrupted} {ctx.previous_calls}")
    """
    run(source, api)
    assert api.calls == [("sendMessage", "False []")]
