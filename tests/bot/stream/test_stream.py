"""Streams of one run and its reruns, with a real Redis and the simulated Bot API."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from celery_lanes import PreviousCall
from celery_lanes.errors import LeaseLost
from chatlanes.bot.addressing import NoChatError
from chatlanes.bot.calls.journal import RecordedCall
from chatlanes.bot.context import Context
from chatlanes.bot.coroutines import awaited
from chatlanes.bot.stream import apply_on_interrupt, finish_interrupted, messages, sender
from chatlanes.telegram.errors import BadRequest, BlockedByUser
from chatlanes.telegram.flood import ParkUpdate
from tests.bot.stream.conftest import Chat
from tests.support.pipeline import BOT_ID, TOKEN, message
from tests.support.waiting import until

FIRST = "A first text that is long enough. "
WORDS = [f"word{number} " for number in range(12)]
LONG = " ".join(f"word{number}" for number in range(1500))


class FailedError(Exception):
    """The handler's."""


def test_a_message_grows(chat: Chat) -> None:
    with chat.run().ctx.stream() as out:
        out.write(FIRST)
        chat.shows(FIRST)
        out.write("More. ")
        chat.shows(FIRST + "More. ")
        out.write("The end.")
    assert chat.messages == {1: FIRST + "More. The end."}
    assert out.text == FIRST + "More. The end."
    assert [sent["text"] for sent in out.messages] == [out.text]


def test_a_function_may_pass_an_iterator(chat: Chat) -> None:
    [sent] = chat.run().ctx.stream(iter(WORDS))
    assert chat.messages == {1: "".join(WORDS)}
    assert sent["text"] == chat.messages[1]


async def asynchronous() -> AsyncIterator[str]:
    yield FIRST


@pytest.mark.parametrize("wrong", [5, "text", asynchronous()])
def test_a_stream_of_something_else_is_refused_in_a_function(chat: Chat, wrong: Any) -> None:
    ctx = chat.run().ctx
    with pytest.raises(TypeError, match=r"^ctx\.stream\(tokens\) needs an iterator of texts, not a "):
        ctx.stream(wrong)
    with ctx.stream() as out, pytest.raises(TypeError, match=r"^write a text to a stream, not a int$"):
        out.write(5)  # type: ignore[arg-type]


def test_a_stream_that_is_not_awaited_fails_the_handler(chat: Chat) -> None:
    async def handle(ctx: Context) -> None:
        ctx.stream(asynchronous())

    async def plainly(ctx: Context) -> None:
        await ctx.stream(WORDS)

    first = chat.run()
    with pytest.raises(TypeError, match=r"^ctx\.stream\(tokens\) was not awaited, so it did not happen"):
        asyncio.run(awaited(handle, first.ctx))
    first.fails()
    with pytest.raises(TypeError, match="an asynchronous iterator of texts, not a list: write the texts of"):
        asyncio.run(awaited(plainly, chat.run().ctx))
    assert chat.messages == {}


def test_a_short_text_is_shown_after_half_a_second(chat: Chat) -> None:
    with chat.run().ctx.stream() as out:
        chat.simulator.calls()
        until(lambda: chat.made("sendChatAction"))
        out.write("Hm")
        chat.shows("Hm")
    assert len(chat.made("sendMessage")) == 1
    assert chat.made("editMessageText") == []  # it is shown exactly as written


def test_a_stream_without_text_sends_nothing(chat: Chat) -> None:
    with chat.run().ctx.stream() as out:
        out.write(" \n")
    assert chat.messages == {}
    assert out.messages == []


def test_formatting_comes_with_the_final_text(chat: Chat) -> None:
    buttons = {"inline_keyboard": [[{"text": "Again", "callback_data": "again"}]]}
    reply = {"message_id": 9}
    with chat.run().ctx.stream(parse_mode="HTML", reply_markup=buttons, reply_parameters=reply) as out:
        out.write(FIRST + "<b>bo")
        chat.shows(FIRST + "<b>bo")
        out.write("ld</b>")
    [sent], edits = chat.made("sendMessage"), chat.made("editMessageText")
    assert sent == {"chat_id": 7, "text": FIRST + "<b>bo", "reply_parameters": reply}
    assert edits[-1] == {
        "chat_id": 7,
        "message_id": 1,
        "text": FIRST + "<b>bold</b>",
        "parse_mode": "HTML",
        "reply_markup": buttons,
    }
    assert out.messages[0]["text"] == FIRST + "bold"


def test_invalid_markup_is_sent_without_formatting(chat: Chat, caplog: pytest.LogCaptureFixture) -> None:
    with chat.run().ctx.stream(parse_mode="HTML") as out:
        out.write("5 < 6 <b>")
    assert chat.messages == {1: "5 < 6 <b>"}
    assert "its markup is invalid" in caplog.text


def test_a_text_can_be_replaced_by_one_with_entities(chat: Chat) -> None:
    bold = [{"type": "bold", "offset": 0, "length": 4}]
    with chat.run().ctx.stream() as out:
        out.write("**Bold** and more than thirty letters")
        chat.shows(out.text)
        out.replace("Bold and more than thirty letters", entities=bold)
    assert chat.made("editMessageText")[-1]["entities"] == bold
    assert chat.messages == {1: "Bold and more than thirty letters"}


def test_halves_of_an_emoji_are_joined(chat: Chat) -> None:
    with chat.run().ctx.stream() as out:
        out.write(FIRST + "\ud83d")
        chat.shows(FIRST + "\ufffd")
        out.write("\ude00")
    assert chat.messages == {1: FIRST + "😀"}


def test_a_long_text_becomes_several_messages(chat: Chat) -> None:
    with chat.run().ctx.stream(parse_mode="MarkdownV2") as out:
        out.write(LONG)
        until(lambda: len(chat.messages) == 4)
        out.write(" *bold*")
    assert "".join(chat.messages.values()) == LONG + " *bold*"
    # Telegram refuses those that change nothing
    edits = [call["params"] for call in chat.simulator.calls("editMessageText")]
    assert [edit.get("parse_mode") for edit in edits[-4:]] == ["MarkdownV2"] * 4
    assert len(out.messages) == len(chat.messages) == 4


def test_drafts_are_shown_where_they_exist(chat: Chat) -> None:
    with chat.run().ctx.stream(draft=True) as out:
        out.write(FIRST)
        until(lambda: [each["text"] for each in chat.made("sendMessageDraft")] == [FIRST])
        out.write("More. ")
        until(lambda: chat.made("sendMessageDraft")[-1]["text"] == FIRST + "More. ")
    assert len({each["draft_id"] for each in chat.made("sendMessageDraft")} - {0}) == 1
    assert chat.messages == {1: FIRST + "More. "}
    assert chat.made("editMessageText") == []


def test_a_draft_is_kept_while_the_model_is_silent(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "DRAFT_S", 0.1)
    with chat.run().ctx.stream(draft=True) as out:
        out.write(FIRST)
        until(lambda: len(chat.made("sendMessageDraft")) >= 3)
        assert {each["text"] for each in chat.made("sendMessageDraft")} == {FIRST}
        # a refused draft is replaced by a message
        chat.simulator.fault(method="sendMessageDraft", status=400, description="Bad Request: no drafts here")
        chat.shows(FIRST)
    assert chat.messages == {1: FIRST}
    assert len({each["draft_id"] for each in chat.made("sendMessageDraft")}) == 1


def test_typing_is_shown_until_the_first_draft(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "TYPING_S", 0.05)
    with chat.run().ctx.stream(draft=True) as out:
        until(lambda: len(chat.made("sendChatAction")) >= 3)
        assert chat.made("sendMessageDraft") == []
        out.write(FIRST)
        until(lambda: chat.made("sendMessageDraft"))
        typed = len(chat.made("sendChatAction"))
        out.write("More. ")
        until(lambda: len(chat.made("sendMessageDraft")) == 2)
        assert len(chat.made("sendChatAction")) == typed


def test_without_drafts_the_message_is_edited(chat: Chat) -> None:
    chat.simulator.fault(method="sendMessageDraft", status=404, description="Not Found: method not found")
    with chat.run().ctx.stream(draft=True) as out:
        out.write(FIRST)
        chat.shows(FIRST)
        out.write("More.")
    assert chat.messages == {1: FIRST + "More."}


def test_a_deleted_message_is_sent_anew(chat: Chat) -> None:
    gone = {"status": 400, "description": "Bad Request: message to edit not found"}
    run = chat.run()
    with run.ctx.stream() as out:
        out.write(FIRST)
        chat.shows(FIRST)
        chat.simulator.fault(method="editMessageText", times=2, **gone)
        out.write("More.")
        until(lambda: chat.simulator.calls("editMessageText"))
        out.write(" End.")
    assert chat.messages == {1: FIRST, 2: FIRST + "More. End."}
    # And a later run continues the new one
    run.fails()
    with chat.run().ctx.stream() as out:
        out.write("Other text")
    assert chat.messages == {1: FIRST, 2: "Other text"}


def test_not_modified_counts_as_success(chat: Chat) -> None:
    same = {"status": 400, "description": "Bad Request: message is not modified: the same content"}
    chat.simulator.fault(method="editMessageText", **same)
    with chat.run().ctx.stream(parse_mode="HTML") as out:
        out.write(FIRST)
        chat.shows(FIRST)
    assert chat.messages == {1: FIRST}


def test_a_refusal_is_raised_by_the_next_write(chat: Chat) -> None:
    chat.simulator.fault(method="sendMessage", status=403, description="Forbidden: bot was blocked by the user")

    def write() -> None:
        with chat.run().ctx.stream() as out:
            while True:
                out.write("word ")

    with pytest.raises(BlockedByUser):
        write()


def test_server_errors_delay_the_text(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatlanes.bot.stream.sender.FIRST_PAUSE_S", 0.01)
    chat.simulator.fault(method="sendMessage", status=502)
    chat.simulator.fault(method="editMessageText", status=502, times=2)
    with chat.run().ctx.stream() as out:
        out.write(FIRST)
        chat.shows(FIRST)
        out.write("More.")
        chat.shows(FIRST + "More.")
    assert chat.messages == {1: FIRST + "More."}


# -- 429


def test_a_429_delays_edits_but_not_the_writer(chat: Chat) -> None:
    chat.simulator.fault(method="editMessageText", status=429, retry_after=2)
    with chat.run().ctx.stream() as out:
        out.write(FIRST)
        chat.shows(FIRST)
        out.write("More. ")
        until(lambda: chat.simulator.stats()["faults"] == 0)
        for word in WORDS:
            out.write(word)
    refused, after = chat.simulator.calls("editMessageText")
    assert after["at"] - refused["at"] >= 2
    assert chat.messages == {1: FIRST + "More. " + "".join(WORDS)}


def test_a_long_429_parks_the_update_and_the_next_run_delivers_the_text(chat: Chat) -> None:
    run = chat.run()

    def write() -> None:
        with run.ctx.stream() as out:
            out.write(FIRST)
            chat.shows(FIRST)
            chat.simulator.fault(method="editMessageText", status=429, retry_after=30)
            out.write("The rest.")

    with pytest.raises(ParkUpdate):
        write()
    assert run.parking.is_wanted
    run.is_parked()
    # When the wait is over and the update runs again
    chat.redis.delete(f"flood:{BOT_ID}:7")
    with chat.run().ctx.stream() as out:
        assert out.is_complete  # so that the language model need not be asked again
    assert chat.messages == {1: FIRST + "The rest."}


def test_the_streams_of_a_chat_edit_in_turn(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatlanes.bot.stream.sender.PRIVATE_S", 0.3)
    ctx = chat.run().ctx
    with ctx.stream() as one, ctx.stream() as two:
        for out in (one, two):
            out.write(FIRST)
        until(lambda: len(chat.messages) == 2)

        def is_edited() -> bool:
            one.write("one ")
            two.write("two ")
            return {edit["message_id"] for edit in edits()[-4:]} == {1, 2} and len(edits()) >= 6

        def edits() -> list[dict[str, Any]]:
            return chat.made("editMessageText")

        until(is_edited)
        times = [call["at"] for call in chat.simulator.calls("editMessageText")]
    # The interval begins before a request leaves, which may be delayed: the first and the last one count.
    assert len(times) <= (times[-1] - times[0]) / 0.3 + 2


# -- later runs


def fail_after(chat: Chat, *texts: str, **options: Any) -> None:
    """A run that shows each of these texts and then fails."""
    run = chat.run()

    def write() -> None:
        with run.ctx.stream(**options) as out:
            for text in texts:
                out.write(text)
                chat.shows(out.text)
            raise FailedError

    with pytest.raises(FailedError):
        write()
    run.fails()


def test_a_later_run_continues_the_message(chat: Chat, caplog: pytest.LogCaptureFixture) -> None:
    fail_after(chat, FIRST, "More. ")
    assert chat.messages == {1: FIRST + "More. "}  # the written text stays
    with chat.run().ctx.stream() as out:
        assert not out.is_complete
        out.write("The language model says something else now, and at length. ")
        chat.shows(out.text)
        out.write("The end.")
    assert chat.messages == {1: "The language model says something else now, and at length. The end."}
    assert len(chat.made("sendMessage")) == 1
    assert "not replayed" not in caplog.text


def test_a_later_run_that_writes_the_same_text_delivers_it(chat: Chat) -> None:
    for fails in (False, False, True):
        run = chat.run()
        with suppress(FailedError), run.ctx.stream() as out:
            out.write(FIRST)
            chat.shows(FIRST)  # in place of the whole text of the run before
            if fails:
                raise FailedError
            out.write("More.")
        assert chat.messages == {1: FIRST if fails else FIRST + "More."}
        run.fails()
    with chat.run().ctx.stream() as out:
        assert out.is_complete
    assert chat.messages == {1: FIRST + "More."}


def test_surplus_messages_are_deleted(chat: Chat) -> None:
    run = chat.run()
    with suppress(FailedError), run.ctx.stream() as out:
        out.write(LONG)
        until(lambda: len(chat.messages) == 4)
        raise FailedError
    run.fails()
    with chat.run().ctx.stream() as out:
        out.write("Short.")
    assert chat.messages == {1: "Short."}
    assert [each["message_id"] for each in chat.made("deleteMessage")] == [4, 3, 2]


def test_calls_around_a_stream_keep_their_places(chat: Chat) -> None:
    for text in (LONG, "Short."):
        run = chat.run()
        run.ctx.reply("Before")
        with run.ctx.stream() as out:
            out.write(text)
        run.ctx.reply("After")
        run.fails()
    assert [each["text"] for each in chat.made("sendMessage") if len(each["text"]) < 10] == ["Before", "After"]


def test_two_streams_of_a_run_have_messages_of_their_own(chat: Chat) -> None:
    for attempt in "ab":
        run = chat.run()
        for name in ("one", "two"):
            with run.ctx.stream() as out:
                out.write(f"{name} {attempt}")
        run.fails()
    assert chat.messages == {1: "one b", 2: "two b"}


def test_a_later_run_knows_that_the_text_is_complete(chat: Chat) -> None:
    run = chat.run()
    with run.ctx.stream() as out:
        out.write(FIRST)
    run.fails()
    with chat.run().ctx.stream() as out:
        assert out.is_complete
    assert out.text == FIRST
    assert chat.messages == {1: FIRST}


def test_a_send_without_an_outcome_is_repeated(chat: Chat) -> None:
    run = chat.run()
    chat.simulator.fault(method="sendMessage", takes_effect=True, reset=True)
    with suppress(FailedError), run.ctx.stream() as out:
        out.write(FIRST)
        until(lambda: chat.simulator.stats()["faults"] == 0)
        raise FailedError
    run.dies()
    with chat.run().ctx.stream() as out:
        out.write(FIRST)
    assert len(chat.made("sendMessage")) == 2


def test_a_run_that_lost_its_lease_changes_nothing(chat: Chat) -> None:
    old = chat.run()

    def write() -> None:
        with old.ctx.stream() as out:
            out.write(FIRST)
            until(lambda: out.messages)
            old.dies()
            with chat.run().ctx.stream() as newer:
                newer.write("Text of the new run")
            while True:
                out.write("zombie ")

    with pytest.raises(LeaseLost):
        write()
    assert chat.messages == {1: "Text of the new run"}


# -- interrupts


@pytest.mark.parametrize(("choice", "left"), [("keep", {1: FIRST}), ("delete", {}), ("mark", {1: FIRST + " ⏹"})])
def test_the_choice_of_an_interrupted_stream_is_applied_by_the_next_run(
    chat: Chat, choice: str, left: dict[int, str]
) -> None:
    fail_after(chat, FIRST, on_interrupt=choice)
    run = chat.run()
    assert run.calls.journal is not None
    previous = run.calls.journal.recorded("")
    for _ in range(2):  # a rerun of the next run repeats nothing
        apply_on_interrupt(run.calls.in_series("interrupt/"), previous)
        assert chat.messages == left


def test_a_stream_whose_block_has_ended_is_interrupted_until_its_text_is_delivered(chat: Chat) -> None:
    fail_after(chat, FIRST, on_interrupt="delete")
    run = chat.run()
    assert run.calls.journal is not None
    previous = run.calls.journal.recorded("")
    series = next(iter(previous)).partition(":")[0]
    previous[f"{series}:text1"] = RecordedCall("done", "text:stream", {"text": FIRST, "entities": None})
    apply_on_interrupt(run.calls.in_series("interrupt/"), previous)
    assert chat.messages == {}


def test_a_finished_stream_is_not_interrupted(chat: Chat) -> None:
    run = chat.run()
    with run.ctx.stream(on_interrupt="delete") as out:
        out.write(FIRST)
    assert run.calls.journal is not None
    run.delivery.journal.confirm()
    apply_on_interrupt(run.calls.in_series("interrupt/"), run.calls.journal.recorded(""))
    assert chat.messages == {1: FIRST}


# -- coroutines


async def words() -> AsyncIterator[str]:
    for word in [FIRST, *WORDS]:
        await asyncio.sleep(0.01)
        yield word


def test_a_coroutine_streams(chat: Chat) -> None:
    async def handle(ctx: Any) -> None:
        async with ctx.stream() as out:
            async for word in words():
                out.write(word)
        assert (await ctx.stream(words()))[0]["text"] == FIRST + "".join(WORDS)

    asyncio.run(awaited(handle, chat.run().ctx))
    assert chat.messages == dict.fromkeys((1, 2), FIRST + "".join(WORDS))


def test_a_complete_text_is_not_asked_for_again(chat: Chat) -> None:
    asked: list[int] = []

    async def tokens() -> AsyncIterator[str]:
        asked.append(1)
        yield FIRST

    async def handle(ctx: Any) -> None:
        await ctx.stream(tokens())

    for _ in range(2):
        run = chat.run()
        asyncio.run(awaited(handle, run.ctx))
        run.fails()
    assert len(asked) == 1
    assert chat.messages == {1: FIRST}


def test_a_rerun_leaves_a_delivered_text_as_the_handler_has_changed_it(chat: Chat) -> None:
    def handle(ctx: Any) -> None:
        with ctx.stream(reply_markup={"inline_keyboard": []}) as out:
            if not out.is_complete:
                out.write("A text. ")
        ctx.edit("Changed", message=out.messages[0])

    # Given a handler that fails after it has changed the message of its stream
    for _ in range(2):
        run = chat.run()
        handle(run.ctx)
        run.fails()
    # Then the next run, which repeats no call, shows the text of the stream no more
    assert chat.messages == {1: "Changed"}
    assert len(chat.made("editMessageText")) == 1


def test_a_delivered_text_is_delivered_again_after_a_run_that_showed_another(chat: Chat) -> None:
    def handle(ctx: Any, text: str) -> None:
        with ctx.stream() as out:
            out.write(text)
            chat.shows(text)
            if text != FIRST:
                raise FailedError

    run = chat.run()
    handle(run.ctx, FIRST)
    run.fails()
    # Given a run that showed another text, and did not deliver it
    run = chat.run()
    with pytest.raises(FailedError):
        handle(run.ctx, "Another text, of another length. ")
    run.fails()
    # Then the next one delivers the first text again
    with chat.run().ctx.stream() as out:
        assert out.is_complete
    assert chat.messages == {1: FIRST}


def test_a_failed_coroutine_leaves_what_was_written(chat: Chat) -> None:
    async def handle(ctx: Any) -> None:
        async with ctx.stream() as out:
            out.write(FIRST)
            while FIRST not in chat.messages.values():
                await asyncio.sleep(0.01)
            raise FailedError

    run = chat.run()
    with pytest.raises(FailedError):
        asyncio.run(awaited(handle, run.ctx))
    run.fails()
    with chat.run().ctx.stream() as out:
        out.write("Other text")
    assert chat.messages == {1: "Other text"}


def test_a_run_waits_for_the_stream_of_a_task(chat: Chat) -> None:
    async def handle(ctx: Any) -> None:
        handle.task = asyncio.ensure_future(ctx.stream(words()))  # type: ignore[attr-defined]

    asyncio.run(awaited(handle, chat.run().ctx))
    assert chat.messages == {1: FIRST + "".join(WORDS)}


def test_the_stream_of_a_task_ends_with_a_failed_run(chat: Chat) -> None:
    async def endless() -> AsyncIterator[str]:
        while True:
            await asyncio.sleep(0.01)
            yield "word "

    async def handle(ctx: Any) -> None:
        handle.task = asyncio.ensure_future(ctx.stream(endless()))  # type: ignore[attr-defined]
        while not chat.messages:
            await asyncio.sleep(0.01)
        raise FailedError

    async def main() -> None:
        with pytest.raises(FailedError):
            await awaited(handle, chat.run().ctx)
        with pytest.raises(LeaseLost):
            await handle.task  # type: ignore[attr-defined]

    asyncio.run(main())


def test_a_cancelled_coroutine_sends_nothing_more(chat: Chat) -> None:
    async def main() -> None:
        async def handle(ctx: Any) -> None:
            async with ctx.stream() as out:
                out.write(FIRST)
                await asyncio.sleep(3600)

        task = asyncio.ensure_future(awaited(handle, chat.run().ctx))
        while FIRST not in chat.messages.values():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert chat.messages == {1: FIRST}


@pytest.mark.slow
def test_a_bot_without_streams_does_not_import_them() -> None:
    script = "import sys, chatlanes.tasks.update; sys.exit('chatlanes.bot.stream' in sys.modules)"
    environment = {**os.environ, "BOT_TOKEN": TOKEN, "BOT": "chatlanes.demo.echo:handle"}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False, timeout=60).returncode == 0


# -- mistakes


def test_mistakes_are_refused(chat: Chat) -> None:
    ctx = chat.run().ctx
    with pytest.raises(ValueError, match="use 'keep', 'delete' or 'mark'"):
        ctx.stream(on_interrupt="drop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inside of its block"):
        ctx.stream().write("too early")
    with ctx.stream() as out:
        out.write("text")
    with pytest.raises(ValueError, match="inside of its block"):
        out.write("too late")

    async def with_instead_of_async_with() -> None:
        with ctx.stream():
            pass

    with pytest.raises(TypeError, match="async with"):
        asyncio.run(with_instead_of_async_with())

    async def without_tokens() -> None:
        await ctx.stream()

    with pytest.raises(TypeError, match="asynchronous iterator"):
        asyncio.run(without_tokens())
    guest = {"update_id": 1, "guest_message": message(1, 7)["message"]}
    with pytest.raises(NoChatError):
        Context(guest, ctx.api).stream()


class Recorder:
    """The api of a user's own test."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def call(self, method: str, /, **params: Any) -> Any:
        if "text" in params:
            self.texts.append(params["text"])
        return {"message_id": 1}


def test_a_stream_works_with_the_api_of_a_test() -> None:
    api = Recorder()
    with Context({**message(1, 7), "update_id": 1}, api).stream() as out:
        out.write("Hello")
    assert api.texts == ["Hello"]


class InFlight:
    """Interrupts whose previous run has a sending in flight. Its outcome is known at the third look."""

    is_interrupted = is_stopped = False

    def __init__(self, outcome: Any) -> None:
        self.outcome, self.looks = outcome, 0
        self.recorded = [PreviousCall("sendMessage:stream-delete", None, 1, "stream1:part1:1")]

    def read_again(self) -> list[PreviousCall]:
        self.looks += 1
        if self.looks == 3 and self.outcome:
            self.recorded = [self.recorded[0]._replace(outcome=json.dumps(self.outcome).encode())]
        return self.recorded


def test_the_outcome_of_a_sending_in_flight_is_waited_for(chat: Chat) -> None:
    run = chat.run()
    sent = run.ctx.reply("Half an")
    interrupts = InFlight(sent)
    finish_interrupted(run.calls, interrupts)  # type: ignore[arg-type]
    assert interrupts.looks == 3
    assert chat.messages == {}


def test_an_outcome_that_nobody_records_is_not_waited_for_longer(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "OUTCOME_WITHIN_S", 0.1)
    finish_interrupted(chat.run().calls, InFlight(None))  # type: ignore[arg-type]
    assert chat.made("deleteMessage") == []


class EphemeralApi:
    """Telegram's answers about ephemeral messages: those sent have ids from 1, and an edit returns True."""

    def __init__(self) -> None:
        self.made: list[tuple[str, dict[str, Any]]] = []
        self._sent = 0

    def call(self, method: str, /, **params: Any) -> Any:
        self.made.append((method, params))
        if method != "sendMessage":
            return True
        self._sent += 1
        ids = {"message_id": 0, "ephemeral_message_id": self._sent, "receiver_user": {"id": 5}}
        return {**ids, "chat": {"id": params["chat_id"]}, "text": params["text"]}


@pytest.mark.usefixtures("quick")
def test_the_stream_of_an_answer_to_an_ephemeral_message_is_ephemeral() -> None:
    api = EphemeralApi()
    asked = {**message(1, -7, user=5)["message"], "message_id": 0, "ephemeral_message_id": 3}
    with Context({"update_id": 1, "message": asked}, api).stream() as out:
        out.write(FIRST)
        until(lambda: api.made)
        out.write(LONG)
    assert "".join(each["text"] for each in out.messages) == FIRST + LONG
    sent = [params for method, params in api.made if method == "sendMessage"]
    edited = [params for method, params in api.made if method == "editEphemeralMessageText"]
    assert len(sent) > 1
    assert edited
    assert len(sent) + len(edited) == len(api.made)  # in particular no sendChatAction, which the group would see
    for params in sent:
        assert params["ephemeral_message_parameters"] == {"receiver_user_id": 5}
        assert params["reply_parameters"] == {"ephemeral_message_id": 3}
    for params in edited:
        assert (params["chat_id"], params["receiver_user_id"]) == (-7, 5)
        assert params["ephemeral_message_id"] in range(1, len(sent) + 1)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("delete", [("deleteEphemeralMessage", {})]),
        ("mark", [("editEphemeralMessageText", {"text": "Half an ⏹"})]),
    ],
)
def test_the_choice_of_an_interrupted_ephemeral_stream_is_applied(choice: Any, expected: Any) -> None:
    ids = {"chat_id": -7, "receiver_user_id": 5, "ephemeral_message_id": 1}
    sent = EphemeralApi().call("sendMessage", chat_id=-7, text="Half an")
    previous = {"stream1:part1:1": RecordedCall("done", f"sendMessage:stream-{choice}", sent)}
    api = EphemeralApi()
    apply_on_interrupt(api, previous)  # type: ignore[arg-type]
    assert api.made == [(method, {**ids, **more}) for method, more in expected]


def test_errors_of_the_final_text_are_raised(chat: Chat) -> None:
    chat.simulator.fault(method="sendMessage", status=400, description="Bad Request: chat not found")

    def write() -> None:
        with chat.run().ctx.stream() as out:
            out.write("x")

    with pytest.raises(BadRequest):
        write()
