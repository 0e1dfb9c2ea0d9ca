"""The lanes as JSON, for an app of FastAPI: `web.include_router(router(celery_app, may_see_lanes), prefix="/lanes")`.

A user who passes the app's dependency may read and change everything. No page of another site can, because
browsers send PUT and DELETE to another site only if it permits them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from click import ClickException, UsageError

from celery_lanes.cli.context import NoAnswerError
from celery_lanes.cli.run import act, run
from celery_lanes.errors import LanesError

try:
    from fastapi import APIRouter, Depends, HTTPException
except ImportError as error:
    raise ImportError("celery_lanes.fastapi needs FastAPI: pip install fastapi") from error

Kind = Literal["lane", "queue", "group"]


def router(app: Any, authenticate: Callable[..., Any] | None = None, *, is_public: bool = False) -> APIRouter:
    """The routes for a Celery app with lanes. `authenticate` is a dependency of FastAPI, which raises HTTPException
    for those who may not use them. With `is_public=True` instead, everybody may. Raises LanesError without either.
    """
    if (authenticate is None) is not is_public:
        raise LanesError(
            "router(app) needs a dependency that refuses others, router(app, authenticate), or is_public=True, which "
            "lets in everybody; not both"
        )
    made = APIRouter(tags=["lanes"], dependencies=[Depends(authenticate)] if authenticate else [])
    _add_reads(made, app)
    _add_changes(made, app)
    return made


# No name of a parameter in a path is likely in `authenticate`: FastAPI would take it for the same one.


def _add_reads(made: APIRouter, app: Any) -> None:
    @made.get("/status")
    def status() -> Any:
        return _read(app, "status", "--now")[0]

    @made.get("/lanes/{lane_key:path}")
    def lane(lane_key: str) -> Any:
        return _read(app, "lane", "--", lane_key)[0]

    @made.get("/dead")
    def dead_letters(lane: str | None = None, group: str | None = None, limit: int = 50) -> Any:
        return _read(app, "dead", "list", *_options(lane, group, limit))

    @made.get("/dead/{message_id:path}")
    def dead_letter(message_id: str) -> Any:
        return _read(app, "dead", "show", "--", message_id)[0]

    @made.get("/timers")
    def timers(lane: str | None = None, group: str | None = None, limit: int = 50) -> Any:
        return _read(app, "timers", "list", *_options(lane, group, limit))


def _add_changes(made: APIRouter, app: Any) -> None:
    @made.put("/dead/{message_id:path}/replay")
    def replay(message_id: str) -> Any:
        return _act(app, "replay", message_id)

    @made.delete("/dead/{message_id:path}")
    def drop(message_id: str) -> Any:
        return _act(app, "drop", message_id)

    @made.delete("/timers/{timer_id:path}")
    def cancel(timer_id: str) -> Any:
        return _act(app, "cancel", timer_id)

    @made.put("/paused/{paused_kind}/{paused_name:path}")
    def pause(paused_kind: Kind, paused_name: str) -> Any:
        return _act(app, f"pause {paused_kind}", paused_name)

    @made.delete("/paused/{paused_kind}/{paused_name:path}")
    def resume(paused_kind: Kind, paused_name: str) -> Any:
        return _act(app, f"resume {paused_kind}", paused_name)


def _options(lane: str | None, group: str | None, limit: int) -> list[str]:
    given = {"lane": lane, "group": group, "limit": limit}
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def _read(app: Any, *words: str) -> list[Any]:
    place = words.index("--") if "--" in words else len(words)
    return [json.loads(text) for text in _answered(run, app, *words[:place], "--json", *words[place:])]


def _act(app: Any, action: str, target: str) -> dict[str, str]:
    return {"result": _answered(act, app, action, target)}


def _answered(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ClickException as error:
        code = 503 if isinstance(error, NoAnswerError) else 422 if isinstance(error, UsageError) else 404
        raise HTTPException(code, error.format_message()) from None
