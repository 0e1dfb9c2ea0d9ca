"""ctx.ask: a question to the user, whose handler ends now and is called again when the user answers.

Guarantees that no process waits for the answer, that the handler is called again from its start, at the place of the
answer in its lane, with the outcome of each call, step and question that it has made so far, and that nothing which it
stages (session, timers, broadcasts) takes effect before it ends. A chat has one open question: a newer one closes it,
and so do an update of CONTROL, the timeout, and the end of a group that becomes a supergroup.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from chatlanes.bot.addressing import NoChatError
from chatlanes.bot.calls.journal import AskTimeout, RecordedCall
from chatlanes.bot.calls.run_calls import Api, Calls, has_begun
from chatlanes.bot.event_loop import blocking_executor, finished, is_in_coroutine
from chatlanes.bot.shorthands import Shorthands
from chatlanes.bot.stored import Stored
from chatlanes.telegram.flood import ParkUpdate
from chatlanes.updates import QUESTION_DATA, number, parse
from chatlanes.updates.routing import NEW_MESSAGES

#: The kind of the update that arrives when the time for an answer is over.
KIND = "question_timeout"
#: <bot id>:<id of the question>: string: a Question as JSON
ASKED = "asked:"
#: <bot id>:<id of the question>: set: the ids of the messages that have continued it; all but the last one are buried
ANSWERS = "answers:"

#: The longest timeout: a question takes memory of Redis until it is closed.
LONGEST_S = 30 * 86_400.0

_IDENTIFYING = ("chat", "message_id", "business_connection_id", "ephemeral_message_id", "receiver_user")

#: A place without a call: a release that does not know `seen` reads the question, and ignores this.
_SEEN = "seen/"

Unrelated = Literal["pass", "remind"]
NOTHING: Any = object()


class Asked(ParkUpdate):
    """Ends a handler that has asked a question. Handlers must not catch it."""


@dataclass
class Question:
    """An open question, as it is stored. `calls`: the outcomes so far of the handler's calls and steps, by place.
    `answers`: those of its earlier questions. `user`: who may answer; None: everybody. `sent`: the parts of the message
    that identify it, and its first date.
    """

    id: str
    text: str
    params: dict[str, Any]
    buttons: list[str]
    unrelated: Unrelated
    user: int | None
    updates: list[dict[str, Any]]
    sent: dict[str, Any] | None = None
    timeout_s: float = 0.0
    answers: list[str | None] = field(default_factory=list)
    calls: dict[str, list[Any]] = field(default_factory=dict)
    #: The updates that the handler has taken of ctx.arrivals, each with its place.
    arrived: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    #: Other values that the handler may have read before it asked; empty ones are left out: its `age_s` at the start,
    #: `is_late`, `is_limited` (it was `on_limited`), `late_s` of its timer, and `previous`: for each of its questions,
    #: its `ctx.previous_calls` before that.
    seen: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: bytes) -> Question:
        """Raises TypeError, ValueError, LookupError and AttributeError."""
        fields = json.loads(stored)
        noted = fields.get("calls", {}).pop(_SEEN, None)
        return cls(**fields, seen=noted[2] if noted else {})

    def stored(self) -> bytes:
        fields = asdict(self)
        if seen := fields.pop("seen"):
            fields["calls"][_SEEN] = ["done", "seen", seen]
        if not self.arrived:
            del fields["arrived"]  # older releases do not know it
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    def recorded(self) -> dict[str, RecordedCall]:
        return {place: RecordedCall(*call) for place, call in self.calls.items()}

    def seen_before(self, asked: int) -> list[list[Any]] | None:
        """The `ctx.previous_calls`, as [name, result], of a handler that has asked this many questions. None: those of
        the run itself.
        """
        if asked >= len(self.answers):
            return None
        previous = self.seen.get("previous", [])
        return previous[asked] if asked < len(previous) else []

    def note_sent(self, sent: Any, *, is_first: bool = True) -> None:
        """`sent`: the result of the call that has sent it. Not `is_first`: it may have been sent before, so texts that
        are older may be answers.
        """
        if isinstance(sent, dict):
            date = (self.sent or sent).get("date", 0) if is_first else 0
            self.sent = {**{name: sent[name] for name in _IDENTIFYING if name in sent}, "date": date}

    @property
    def place(self) -> tuple[int | None, int | None]:
        """Its chat and topic."""
        asked = parse(self.updates[-1])
        return asked.home, asked.topic

    def is_for(self, user: int | None) -> bool:
        return self.user in (None, user)

    def all_params(self) -> dict[str, Any]:
        """The parameters with which it is sent."""
        if not self.buttons:
            return self.params
        rows = [
            [{"text": each, "callback_data": f"{QUESTION_DATA}{self.id}:{n}"}] for n, each in enumerate(self.buttons)
        ]
        return {**self.params, "reply_markup": {"inline_keyboard": rows}}


@dataclass(frozen=True)
class Meaning:
    """The meaning of an update for the open question. `closed`: no answer will continue it; the update goes to the bot.
    `answer`: None: the time for it is over.
    """

    what: Literal["answer", "closed", "old", "foreign", "remind", "unrelated"]
    answer: str | None = None


def judge(
    question: Question | None, updates: Sequence[dict[str, Any]], texts: Sequence[str], is_control: bool = False
) -> Meaning:
    """`texts`: of all the updates, of which the newest decides. `is_control`: one of them is an update of CONTROL."""
    parsed = parse(updates[-1])
    if parsed.kind == KIND:
        return Meaning("answer" if question and parsed.body.get("name") == question.id else "old")
    if (data := str(parsed.body.get("data") or "")).startswith(QUESTION_DATA):
        return _judge_button(question, data.removeprefix(QUESTION_DATA), parsed.user)
    if question is not None and (is_control or parsed.migrates) and parsed.home == question.place[0]:
        return Meaning("closed")
    if question is None or parsed.kind not in NEW_MESSAGES or not question.is_for(parsed.user):
        return Meaning("unrelated")
    if (parsed.home, parsed.topic) != question.place:  # of another chat in the same lane, or of another topic
        return Meaning("unrelated")
    text = "\n".join(texts)
    if text.startswith("/") or _is_older(parsed.body, question.sent):  # its writer had not seen the question
        return Meaning("unrelated")
    if text and (not question.buttons or text in question.buttons):
        return Meaning("answer", text)
    return Meaning("remind" if question.unrelated == "remind" else "unrelated")


def _is_older(message: dict[str, Any], than: dict[str, Any] | None) -> bool:
    """By their dates, in s; False if one is unknown."""
    date, other = number(message.get("date")), number((than or {}).get("date"))
    return date is not None and other is not None and 0 < date < other


def _judge_button(question: Question | None, data: str, user: int | None) -> Meaning:
    id_, _, place = data.rpartition(":")
    if question is None or id_ != question.id or not (place.isdecimal() and int(place) < len(question.buttons)):
        return Meaning("old")
    return Meaning("answer", question.buttons[int(place)]) if question.is_for(user) else Meaning("foreign")


class AskingContext(Protocol):
    """The parts of a context that a question uses."""

    update: dict[str, Any]
    updates: Sequence[dict[str, Any]]
    api: Api
    attempt: int
    stored: Stored | None
    question: Question | None

    @property
    def user_id(self) -> int | None: ...


def ask(
    ctx: AskingContext,
    text: str,
    buttons: Sequence[str],
    timeout_s: float,
    unrelated: Unrelated,
    default: Any,
    params: dict[str, Any],
) -> Any:
    """The answer, or in a coroutine an awaitable of it. The arguments are those of Context.ask."""
    _check(buttons, timeout_s, unrelated, params)
    if ctx.stored is None or not isinstance(ctx.api, Calls) or ctx.api.journal is None:
        raise LookupError("ctx.ask needs an update that came through a lane")
    if ctx.api.journal.is_of_hook or "broadcast" in ctx.update:
        raise LookupError("ctx.ask works in a handler, not in a hook or in the handler of a broadcast")
    if parse(ctx.update).is_guest:
        raise NoChatError("nobody in a guest's chat can answer ctx.ask; use ctx.reply, which it accepts once")
    former = ctx.question
    count = ctx.__dict__["asked"] = ctx.__dict__.get("asked", 0) + 1
    question = Question(
        id=f"{_series(ctx, ctx.stored)}-{count}",
        text=text,
        params=params,
        buttons=[*buttons],
        unrelated=unrelated,
        user=ctx.user_id,
        updates=[*ctx.updates],
        timeout_s=timeout_s,
        answers=[] if former is None else former.answers,
    )
    question.stored()  # raises TypeError for a parameter that cannot be stored, before it is sent
    if is_in_coroutine():
        return _ask_soon(ctx, question, count, default, ctx.api)
    _send(ctx, question, ctx.api)
    return _answer(ctx, question, count, default)


def _ask_soon(
    ctx: AskingContext, question: Question, count: int, default: Any, calls: Calls
) -> Coroutine[Any, Any, Any]:
    api = calls.reserved("sendMessage")

    async def awaited() -> Any:
        with calls.life.tracked():
            await finished(blocking_executor().call(partial(_send, ctx, question, api)))
        return _answer(ctx, question, count, default)

    coroutine = awaited()
    calls.life.expect_await("ctx.ask(…)", partial(has_begun, coroutine))
    return coroutine


def _series(ctx: AskingContext, stored: Stored) -> str:
    """The same for all questions of a handler, and in each of its runs."""
    if ctx.question is not None:
        return ctx.question.id.rpartition("-")[0]
    return str(ctx.update.get("update_id", stored.message_id.partition(":")[2].replace(":", "-")))


class _Reply(Shorthands):
    """A reply to the update of a context, whether that is one of a coroutine or not."""

    def __init__(self, ctx: AskingContext, api: Api) -> None:
        self._parsed, self._api = parse(ctx.update), api

    def call(self, method: str, /, **params: Any) -> Any:
        return self._api.call(method, **params)


def _send(ctx: AskingContext, question: Question, api: Api) -> None:
    """Send it, or get what the run that sent it has got."""
    sent = _Reply(ctx, api).reply(question.text, **question.all_params())
    question.note_sent(sent, is_first=ctx.attempt == 1)


def _check(buttons: Sequence[str], timeout_s: float, unrelated: str, params: dict[str, Any]) -> None:
    """Raises ValueError."""
    if unrelated not in ("pass", "remind"):
        raise ValueError(f"unrelated={unrelated!r}: use 'pass' or 'remind'")
    if not isinstance(buttons, list | tuple) or not all(isinstance(each, str) and each for each in buttons):
        raise ValueError(f"buttons={buttons!r:.100}: use a list of texts")
    if commands := [each for each in buttons if each.startswith("/")]:
        raise ValueError(f"buttons={commands!r:.100}: a text that begins with / is a command, which is not an answer")
    if buttons and "reply_markup" in params:
        raise ValueError("ctx.ask: give buttons or a reply_markup, not both")
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < timeout_s <= LONGEST_S:
        raise ValueError(f"timeout={timeout_s!r}: use seconds above 0, at most {LONGEST_S:.0f} (30 days)")


def _answer(ctx: AskingContext, question: Question, count: int, default: Any) -> Any:
    if count > len(question.answers):
        ctx.__dict__["new_question"] = question
        raise Asked(f"question {question.id} waits for its answer")
    answer = question.answers[count - 1]
    if answer is not None:
        return answer
    if default is NOTHING:
        raise AskTimeout(f"nobody has answered in {question.timeout_s:.0f} s: {question.text[:100]!r}")
    return default
