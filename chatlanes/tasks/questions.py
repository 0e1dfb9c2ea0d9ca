"""The runs of questions (bot/calls/questions.py): what opens one, and what an update means for the open one.

The run of the answer continues the handler that has asked, with its updates and the outcomes of its calls. The question
is closed by the commit of that run, so a crash at any point runs the same answer again. The note of the lane is the id
of its open question: a bot without questions pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from celery.utils.log import get_task_logger
from redis.exceptions import RedisError

import celery_lanes as lanes
from celery_lanes.errors import RedisAway
from celery_lanes.protocol import Delete, Set, SetNote, Write, plain
from celery_lanes.runtime.threads import run_blocking
from chatlanes.bot.calls.journal import CallJournal, RecordedCall, is_of_handler
from chatlanes.bot.calls.questions import ANSWERS, ASKED, KIND, LONGEST_S, Meaning, Question, judge
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context
from chatlanes.bot.stored import Stored
from chatlanes.bot.timers import Timers
from chatlanes.tasks.bots import ServedBot
from chatlanes.telegram import BotApiError
from chatlanes.telegram.flood import Parking

logger = get_task_logger(__name__)

#: Longer than any question is open, in s.
_KEPT_S = 2 * int(LONGEST_S)


class AskingRun(Protocol):
    """The run of an update (update.py)."""

    served: ServedBot
    ctx: Context
    started_s: float
    handler: Callable[[Context], object] | None
    delivery: lanes.Delivery
    parking: Parking
    writes: list[Write]


def take(run: AskingRun) -> None:
    """Find out what the update of the run means for the open question of its lane, and let the run do that."""
    ctx = run.ctx
    question, lane = _open_question(run)
    meaning = judge(question, ctx.updates, ctx.texts, question is not None and _is_control(run))
    is_closed, is_stopped = meaning.what in ("answer", "closed"), run.delivery.is_stopped
    if meaning.what == "unrelated" or (is_stopped and not is_closed):
        return
    calls = ctx.api.in_series("question/", ctx.api.life) if isinstance(ctx.api, Calls) else ctx.api
    before = replace(ctx, api=calls)
    if question is not None and is_closed:
        run.writes += _closing(run, question, lane)
        if meaning.what == "answer" and not is_stopped:
            _keep_answer(run, question)
            _continue(run, question, meaning)

    def handle(ctx: Context) -> None:
        run_blocking(lambda: _reply(run, before, question, meaning))
        if is_closed and not is_stopped:
            _bot_of(run, ctx)(ctx)
            _check_answers(ctx)

    run.handler = handle


def _bot_of(run: AskingRun, ctx: Context) -> Callable[[Context], object]:
    """The bot, or its on_limited if that has asked."""
    if ctx.question is not None and ctx.question.seen.get("is_limited"):
        return run.served.limited
    return run.served.bot_for(ctx)


def _check_answers(ctx: Context) -> None:
    """Raises LookupError if the handler has ended without asking all of its answered questions again."""
    if ctx.question is None or "new_question" in ctx.__dict__ or ctx.interrupted:
        return
    if ctx.__dict__.get("asked", 0) < len(ctx.question.answers):
        raise LookupError(
            f"the answer to question {ctx.question.id} has reached no ctx.ask: the bot, called again with the update "
            "that asked, did not ask. Its code has changed, or the state by which it chooses its handler"
        )


def _keep_answer(run: AskingRun, question: Question) -> None:
    """The text of a button stays the answer: with a later message it would be none. Raises LeaseLost."""
    if question.buttons:
        run.delivery.close_group()


def _continue(run: AskingRun, question: Question, meaning: Meaning) -> None:
    """Give the run the context of the handler that has asked."""
    ctx = run.ctx
    question.answers.append(meaning.answer)
    seen = question.seen
    run.ctx = replace(
        ctx,
        update=question.updates[-1],
        updates=question.updates,
        question=question,
        is_late=seen.get("is_late", False),
        appended_s=run.started_s - seen.get("age_s", 0.0),
        plan=replace(ctx.plan, late_s=seen.get("late_s", 0.0)),
    )
    if run.delivery.interrupted:  # the answer is another one now
        run.ctx.__dict__["newest_of_answer"] = ctx.update.get("update_id")
    if isinstance(ctx.api, Calls) and ctx.api.journal is not None:
        ctx.api.journal.replay({**_paid_by_others(run, question, ctx.api.journal), **question.recorded()})


def _paid_by_others(run: AskingRun, question: Question, journal: CallJournal) -> dict[str, RecordedCall]:
    """The steps of answers that have continued the question before, and are buried. Raises RedisAway."""
    key, id_ = _key(run, question.id, ANSWERS), run.delivery.id
    noted = plain("SADD", key, id_), plain("EXPIRE", key, _KEPT_S), plain("SMEMBERS", key)
    *_, answers = journal.run.ask(*noted)
    if isinstance(answers, RedisError):
        raise RedisAway(f"Redis does not return the answers to question {question.id}: {answers}") from answers
    paid: dict[str, RecordedCall] = {}
    for other in {each.decode() for each in answers} - {id_}:
        paid |= journal.recorded("step/", other)
    return paid


def _is_control(run: AskingRun) -> bool:
    """True if one of its updates stops the run before it. Raises ImportPathError."""
    return run.served.stops is not None and any(map(run.served.stops, run.ctx.updates))


def opened(run: AskingRun) -> list[Write]:
    """The writes that open the question which the run has asked, and close the one that was open."""
    ctx = run.ctx
    question: Question = ctx.__dict__["new_question"]
    assert isinstance(ctx.api, Calls)  # noqa: S101  Context.ask checks it
    assert ctx.api.journal is not None  # noqa: S101
    question.calls = {place: [*call] for place, call in ctx.api.journal.outcomes().items() if is_of_handler(place)}
    question.arrived = ctx.__dict__.get("taken", [])
    question.seen = _seen(run, question)
    former, lane = _open_question(run)
    timers = Stored(run.delivery, run.parking)
    writes: list[Write] = [] if former is None else _closing(run, former, lane)
    writes += [Set(_key(run, question.id), question.stored()), SetNote(lane, question.id)]
    after_ms = round(question.timeout_s * 1000)
    Timers(ctx.update, ctx.plan, timers).stage(timers, KIND, question.id, {}, None, after_ms)
    return [*writes, *timers.writes]


def _seen(run: AskingRun, question: Question) -> dict[str, Any]:
    """What the handler may have read before it asked; empty values are left out. Raises LeaseLost."""
    ctx, former = run.ctx, run.ctx.question
    calls = [[call.method, call.result] for call in ctx.previous_calls]
    before = [] if former is None else [former.seen_before(n) or [] for n in range(len(former.answers))]
    previous = [*before, calls]
    seen = {
        "age_s": 0.0 if ctx.appended_s is None else run.started_s - ctx.appended_s,
        "late_s": ctx.plan.late_s,
        "is_late": ctx.is_late,
        "is_limited": run.delivery.is_marked or (former is not None and former.seen.get("is_limited", False)),
        "previous": previous if any(previous) else [],
    }
    return {name: value for name, value in seen.items() if value}


def _open_question(run: AskingRun) -> tuple[Question | None, str]:
    """The open question of the run's first lane, and this lane. Raises LeaseLost and RedisAway."""
    note = run.delivery.note
    found = run.delivery.read([_key(run, note)] if note else [])
    lane = found.lanes[0] if found.lanes else ""
    if not note or not found.values[0]:
        return None, lane
    try:
        return Question.of(found.values[0]), lane
    except (TypeError, ValueError, LookupError, AttributeError):  # of a newer release, or changed by hand
        logger.warning("%s: question %s cannot be read; this update goes to the bot", run.delivery.id, note)
        return None, lane


def _closing(run: AskingRun, question: Question, lane: str) -> list[Write]:
    timers = Stored(run.delivery, run.parking)
    Timers(question.updates[-1], run.ctx.plan, timers).cancel(question.id)
    kept = [Delete(_key(run, question.id, prefix)) for prefix in (ASKED, ANSWERS)]
    return [*kept, SetNote(lane, None), *timers.writes]


def _reply(run: AskingRun, ctx: Context, question: Question | None, meaning: Meaning) -> None:
    """The calls that an update leads to, before the handler. Telegram may refuse them: the message may be gone."""
    with suppress(BotApiError):
        if ctx.kind == "callback_query" and meaning.what != "closed":
            foreign = "This question is for somebody else." if meaning.what == "foreign" else None
            ctx.answer_callback(foreign)
    with suppress(BotApiError):
        if question is not None and meaning.what in ("answer", "closed") and question.buttons and question.sent:
            ctx.edit_markup(message=question.sent)
        elif meaning.what == "old" and ctx.kind == "callback_query":
            ctx.edit_markup()
        elif question is not None and meaning.what == "remind":
            _remind(run, ctx, question)


def _remind(run: AskingRun, ctx: Context, question: Question) -> None:
    """Send the question again. Its buttons move to the new message. Raises BotApiError."""
    former = question.sent
    question.note_sent(ctx.reply(question.text, **question.all_params()))
    run.writes.append(Set(_key(run, question.id), question.stored()))
    if question.buttons and former:
        ctx.edit_markup(message=former)


def _key(run: AskingRun, id_: str, prefix: str = ASKED) -> str:
    return f"{prefix}{run.delivery.id.partition(':')[0]}:{id_}"
