"""The bot of the calls row: sends one message per update and records how long that call took.

`journaled` calls as every bot does; `bare` calls without journal and gate: with `requests`, one session per process.
The environment variable BENCH_CALLS names the file; each line is one call, in milliseconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

import requests

from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context

CALLS = "BENCH_CALLS"


def journaled(ctx: Context) -> None:
    _say_hello(ctx, ctx.call)


def bare(ctx: Context) -> None:
    api = cast(Calls, ctx.api).api
    _say_hello(ctx, partial(_post, f"{api.url}/bot{api.token}/"))


def _post(base: str, method: str, **params: Any) -> Any:
    answer = _session().post(base + method, json=params, timeout=60)
    return answer.json()["result"]


@cache
def _session() -> requests.Session:
    return requests.Session()


def _say_hello(ctx: Context, call: Callable[..., Any]) -> None:
    began_s = time.perf_counter()
    call("sendMessage", chat_id=ctx.chat_id, text="hello")
    os.write(_file(), f"{(time.perf_counter() - began_s) * 1000:.3f}\n".encode())


@cache
def _file() -> int:
    return os.open(os.environ[CALLS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
