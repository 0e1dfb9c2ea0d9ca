"""Replaces Celery's tracer for tasks of lane queues: values that are the same for every run are computed once.

Guarantees that everything Celery's tracer does (signals, the task's hooks, its request, log lines, the report to the
pool) is done in the same order. Celery's own tracer still runs tasks that store results, have callbacks, a chain or a
chord, and every message of an ordinary queue.
"""

from __future__ import annotations

from operator import attrgetter
from time import monotonic
from typing import Any, cast

from billiard.einfo import ExceptionInfo
from celery import signals
from celery._state import _task_stack
from celery.app import trace
from celery.app.task import Context
from celery.app.trace import TraceInfo, get_task_name, task_has_custom, trace_ok_t, traceback_clear
from celery.backends.base import DisabledBackend
from celery.exceptions import Ignore, Reject, Retry
from celery.loaders.base import BaseLoader
from celery.states import FAILURE, IGNORED, REJECTED, RETRY, SUCCESS
from celery.utils.saferepr import saferepr
from celery.utils.threads import _LocalStack, get_ident

from celery_lanes.protocol import envelope
from celery_lanes.worker.delivery import REQUEST_ATTRIBUTE, Delivery, delivery_of
from celery_lanes.worker.task import LaneTask, Trace

#: Entries of a body that start other tasks when the run has ended.
_FOLLOW_UPS = ("callbacks", "chain", "chord")

#: Signals of a run, to which user code may be connected.
_SIGNALS = (
    signals.task_prerun,
    signals.task_success,
    signals.task_failure,
    signals.task_retry,
    signals.task_internal_error,
    signals.task_postrun,
)
_RECEIVERS = attrgetter("receivers")

#: Names in a request that Celery and lanes set. All others are the publisher's own headers
#: (Context._get_custom_headers).
_STANDARD = frozenset({*vars(Context), "lang", "task", "argsrepr", "kwargsrepr", "compression", REQUEST_ATTRIBUTE})


class LaneContext(Context):
    """`task.request`, which computes its headers when they are read."""

    def __init__(self, request: dict[str, Any], **more: Any) -> None:
        self.update(request, **more)

    @property
    def headers(self) -> dict[str, Any] | None:
        values = self.__dict__
        if values.get("headers") is None:
            values["headers"] = {name: value for name, value in values.items() if name not in _STANDARD} or None
        headers: dict[str, Any] | None = values["headers"]
        return headers

    @headers.setter
    def headers(self, headers: dict[str, Any] | None) -> None:
        self.__dict__["headers"] = headers


class Tracer:
    """The tracer of one task in one process. `stock` is the tracer that Celery built for it."""

    def __init__(self, task: LaneTask, stock: Trace) -> None:
        self._task, self._stock = task, stock
        # None for a task with its own __call__, which must be called.
        self._run_leased = task.run_leased if type(task).__call__ is LaneTask.__call__ else None
        self._lanes = task.app.lanes
        self._is_usual = _is_usual(task)
        self._before_start = task.before_start if task_has_custom(task, "before_start") else None
        self._on_success = task.on_success if task_has_custom(task, "on_success") else None
        self._after_return = task.after_return if task_has_custom(task, "after_return") else None
        self._logs_success = trace.logger.isEnabledFor(trace.logging.INFO)

    def is_alone(self, embed: dict[str, Any]) -> bool:
        """True if a run with this `embed` in its body calls only code of the task and of lanes."""
        return self._is_usual and not any(map(embed.get, _FOLLOW_UPS)) and not any(map(_RECEIVERS, _SIGNALS))

    def __call__(self, uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Any:
        is_ours = self._is_usual and request and request.get(envelope.LANE) and type(kwargs) is dict
        if request is None or not is_ours or any(map(request.get, _FOLLOW_UPS)):
            return self._stock(uuid, args, kwargs, request)
        return self._trace(uuid, args, kwargs, request)

    def _trace(self, uuid: str, args: Any, kwargs: Any, request: dict[str, Any]) -> Any:
        began_s = monotonic()
        context = LaneContext(request, args=args, called_directly=False, kwargs=kwargs)
        try:
            return self._run_traced(uuid, context, began_s)
        except (MemoryError, Reject):
            raise
        except Exception as error:  # raised outside the task, for example by a signal's receiver
            trace._signal_internal_error(self._task, uuid, args, kwargs, request, error)
            problem = trace.report_internal_error(self._task, error)
            info = TraceInfo(FAILURE, error)
            info.handle_error_state(self._task, context)
            return trace_ok_t(problem, info, None, None)

    def _run_traced(self, uuid: str, context: Any, began_s: float) -> Any:
        """The run with its signals, with the task and its request as Celery's current ones."""
        task, args, kwargs = self._task, context.args, context.kwargs
        state = retval = None
        _push(_task_stack, task)
        _push(task.request_stack, context)
        try:
            if signals.task_prerun.receivers:
                signals.task_prerun.send(sender=task, task_id=uuid, task=task, args=args, kwargs=kwargs)
            try:
                if self._before_start:
                    self._before_start(uuid, args, kwargs)
                retval = self._run(context, args, kwargs)
                state = SUCCESS
            except Exception as error:
                ended = self._failed(context, error)
                state, retval = ended.info.state, error
            else:
                ended = self._succeeded(uuid, context, retval, began_s)
            if self._after_return and state not in trace.IGNORE_STATES:
                self._hook("after_return", uuid, context, state, retval, uuid, args, kwargs, None)
            return ended
        finally:
            try:
                if signals.task_postrun.receivers:
                    signals.task_postrun.send(
                        sender=task, task_id=uuid, task=task, args=args, kwargs=kwargs, retval=retval, state=state
                    )
            finally:
                _pop(_task_stack)
                _pop(task.request_stack)

    def _run(self, context: Any, args: Any, kwargs: Any) -> Any:
        if self._run_leased is None:
            return self._task(*args, **kwargs)
        delivery = cast(Delivery, delivery_of(context, self._lanes))  # only lane messages get here
        return self._run_leased(delivery, args, kwargs)

    def _succeeded(self, uuid: str, context: Any, retval: Any, began_s: float) -> Any:
        task = self._task
        shown = "None" if retval is None else saferepr(retval, task.resultrepr_maxsize)
        runtime_s = monotonic() - began_s
        if self._on_success:
            self._hook("on_success", uuid, context, retval, uuid, context.args, context.kwargs)
        if signals.task_success.receivers:
            signals.task_success.send(sender=task, result=retval, runtime=runtime_s)
        if self._logs_success:
            trace.info(
                trace.LOG_SUCCESS,
                {
                    "id": uuid,
                    "name": get_task_name(context, task.name),
                    "return_value": shown,
                    "runtime": runtime_s,
                    "args": context.get("argsrepr") or trace.safe_repr(context.args),
                    "kwargs": context.get("kwargsrepr") or trace.safe_repr(context.kwargs),
                },
            )
        return trace_ok_t(retval, None, runtime_s, shown)

    def _failed(self, context: Any, error: Exception) -> Any:
        """Called in the `except` block of the error."""
        if isinstance(error, Reject):
            info, problem = TraceInfo(REJECTED, error), ExceptionInfo(internal=True)
            info.handle_reject(self._task, context)
        elif isinstance(error, Ignore):
            info, problem = TraceInfo(IGNORED, error), ExceptionInfo(internal=True)
            info.handle_ignore(self._task, context)
        else:
            is_retry = isinstance(error, Retry)
            info = TraceInfo(RETRY if is_retry else FAILURE, error)
            problem = info.handle_error_state(self._task, context, call_errbacks=not is_retry)
        traceback_clear(error)
        return trace_ok_t(problem, info, None, None)

    def _hook(self, name: str, uuid: str, context: Any, *arguments: Any) -> None:
        """Call a hook of the task that follows its outcome. If the hook fails, the outcome stays the same."""
        try:
            getattr(self._task, name)(*arguments)
        except (Reject, MemoryError):
            raise
        except Exception as error:
            sentence = f"Task %s[%s] {name} handler raised: %r"
            trace.logger.exception(sentence, get_task_name(context, self._task.name), uuid, error)
            traceback_clear(error)


def _push(stack: Any, item: Any) -> None:
    """Like `stack.push`, without its two failing lookups, each of which raises and catches an exception."""
    if type(stack) is not _LocalStack:
        stack.push(item)
        return
    locals_, ident = stack._local.__storage__, get_ident()
    here = locals_.get(ident)
    if here is None:
        locals_[ident] = {"stack": [item]}
    else:
        here["stack"].append(item)


def _pop(stack: Any) -> None:
    """Like `stack.pop`."""
    if type(stack) is not _LocalStack:
        stack.pop()
        return
    locals_, ident = stack._local.__storage__, get_ident()
    items = locals_[ident]["stack"]
    items.pop()
    if not items:
        del locals_[ident]


def _is_usual(task: LaneTask) -> bool:
    """True if no result is stored or looked up for its runs, and the app's loader has no hooks for them."""
    app, loader = task.app, type(task.app.loader)
    looks_up = app.conf.worker_deduplicate_successful_tasks and app.backend.persistent
    has_hooks = (
        loader.on_task_init is not BaseLoader.on_task_init
        or loader.on_process_cleanup is not BaseLoader.on_process_cleanup
    )
    return isinstance(task.backend, DisabledBackend) and not looks_up and not has_hooks


def apply(worker: Any) -> None:
    worker.app.lanes.make_tracer = Tracer
