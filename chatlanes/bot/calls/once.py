"""The parts of a context that a handler does once, however often it runs: paid calls, questions, and its choices about
newer updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from celery_lanes.protocol import Mode
    from chatlanes.bot.calls.journal import Uncertain
    from chatlanes.bot.calls.steering import ArrivedUpdates


class Once:
    """Mixed into Context."""

    def arrivals(self) -> ArrivedUpdates:
        """The updates that have arrived since this run began and belong to it (INTERRUPT=steer), as Telegram sent them,
        the oldest first: `for update in ctx.arrivals()`, in a coroutine `async for`.

        The loop ends when no more has arrived, and never waits; call it again later. An update that it has yielded is
        settled with this run, and a later run of the handler gets it in the same place: between the same calls and
        steps. Those that were not yielded are the next run. Asks Redis only if something has arrived.

        Raises:
            celery_lanes.LeaseLost: Another worker may run this update by now.
            TypeError: `for` in a coroutine.
        """
        from chatlanes.bot.calls.steering import ArrivedUpdates

        return ArrivedUpdates(self)  # type: ignore[arg-type]

    @property
    def arrived(self) -> bool:
        """True if `arrivals()` yields an update now. Does not ask Redis."""
        return self.arrivals().has_any

    @property
    def mode(self) -> Mode:
        """How an update is handled that arrives during a run of this chat and belongs to it:

        `"queue"` it is a run of its own, `"collect"` it is in the next run, `"interrupt"` it ends the run, `"steer"`
        the run may take it (`arrivals()`). Assign one of these, so that users can choose; None returns to INTERRUPT.
        It is stored when this update is settled, and holds for updates that arrive after that.

        The first look takes a round trip to Redis.

        Raises:
            ValueError: On assignment: this is not a mode, or COLLECT is `none`.
            celery_lanes.LeaseLost: Another worker may run this update by now.
            ParkUpdate: Redis did not answer. Do not catch it; the update runs again later.
        """
        from chatlanes.bot.calls.steering import mode_of

        return mode_of(self)  # type: ignore[arg-type]

    @mode.setter
    def mode(self, mode: Mode | None) -> None:
        from chatlanes.bot.calls.steering import choose

        choose(self, mode)  # type: ignore[arg-type]

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        uncertain: Uncertain | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function that costs money, or must not be repeated, and record its result: a later run of this update
        gets the same result without calling it. In a coroutine, and so in a framework's, `await ctx.step(…)`.

        If the function has parameters `key` and `fence`, it gets a key for the receiver's own idempotency, the same in
        each run, and `ctx.fence`. It must not call the Bot API, except for methods that only read, or another step.

        Args:
            name: Identifies the step, together with its number among the steps of this name. Letters, digits,
                `_`, `-` and `.`.
            function: A function, or a coroutine function in a coroutine. Its result is JSON of at most 1 MiB.
            args: Its arguments. They are not compared with those of an earlier run.
            uncertain: `"repeat"` or `"skip"`, instead of UNCERTAIN_CALL: whether to call it again if an earlier run
                was ended during the call. A skipped step returns None.
            kwargs: Its keyword arguments.

        Raises:
            chatlanes.StepError: The result cannot be stored, or the step is used wrongly.
            celery_lanes.LeaseLost: Another worker may run this update by now. The function was not called.
            Exception: Whatever the function raises. The step is not done then, and a later run calls it again.
        """
        from chatlanes.bot.calls.steps import step

        return step(self, name, function, args, kwargs, uncertain)  # type: ignore[arg-type]

    def ask(
        self,
        text: str,
        /,
        *,
        buttons: Sequence[str] = (),
        timeout: float = 7 * 86_400.0,
        unrelated: Literal["pass", "remind"] = "pass",
        default: Any = ...,
        **params: Any,
    ) -> Any:
        """Ask the user, and return the answer. In a coroutine, and so in a framework's, `await ctx.ask(…)`.

        The handler ends here. It is called again from its start when the user answers, on any worker, and gets the
        outcomes of the calls, steps and questions that it has made so far without repeating them. What it stages, such
        as its session and timers, takes effect when it ends.

        Args:
            text: The question, sent with sendMessage.
            buttons: The possible answers, shown as buttons below the question. Without any, the answer is the text of
                the user's next message.
            timeout: Seconds after which the question is closed, at most 30 days.
            unrelated: What happens to a message that is not an answer: `"pass"` gives it to the bot, `"remind"` sends
                the question again instead. Commands, and updates of other kinds, are always given to the bot.
            default: Returned after the timeout, instead of raising AskTimeout.
            params: Other parameters of sendMessage, such as `parse_mode`.

        Raises:
            chatlanes.AskTimeout: Nobody has answered in time.
            LookupError: The update did not come through a lane.
            ValueError: `buttons`, `timeout` or `unrelated` is none of these.
        """
        from chatlanes.bot.calls.questions import NOTHING, ask

        given = NOTHING if default is ... else default
        return ask(self, text, buttons, timeout, unrelated, given, params)  # type: ignore[arg-type]
