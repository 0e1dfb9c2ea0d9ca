"""The page of the admin: lanes, dead letters, timers and pauses, with the actions of `celery -A … lanes`.

Staff with the permission `view_lane` sees it; only staff with `change_lane` may act. Each action is in the log of the
admin, after it was done: if the process dies in between, the entry is missing.
"""

from __future__ import annotations

import json
from typing import Any

from celery import current_app
from click import ClickException
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import get_script_prefix, path, set_script_prefix

from celery_lanes.cli.context import NoAnswerError
from celery_lanes.cli.formatting import moment
from celery_lanes.cli.run import ACTIONS, act, load_tasks, run
from celery_lanes.cli.status import STATES
from celery_lanes.django.models import Lane


@admin.register(Lane)
class LaneAdmin(admin.ModelAdmin):
    def get_urls(self) -> list[Any]:
        page = self.admin_site.admin_view(self.page)  # checks the login and the CSRF token
        return [path("", page, name="celery_lanes_lane_changelist")]

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def page(self, request: Any) -> Any:
        """`?lane=KEY`: only this lane. `?letter=ID`: a dead letter."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        prefix = get_script_prefix()
        load_tasks(current_app._get_current_object())
        set_script_prefix(prefix)  # Celery has called django.setup(), which resets it
        return self._act(request) if request.method == "POST" else self._show(request)

    def _act(self, request: Any) -> Any:
        action, targets = (
            request.POST.get("action", ""),
            request.POST.getlist("listed" if "all" in request.POST else "target"),
        )
        if not self.has_change_permission(request) or action not in ACTIONS:
            raise PermissionDenied
        if action == "drop" and targets and "is_sure" not in request.POST:
            return self._rendered(request, "drop.html", {"targets": targets})
        try:
            done = act(current_app._get_current_object(), action, *targets)
        except ClickException as error:
            self.message_user(request, f"Not done: {error.format_message()}", messages.ERROR)
        else:
            self.log_change(request, Lane(key=", ".join(targets)), done)
            self.message_user(request, done)
        return HttpResponseRedirect(f"{request.path}?{_query(lane=request.GET.get('lane', ''))}")

    def _show(self, request: Any) -> Any:
        lane, letter = request.GET.get("lane", ""), request.GET.get("letter")
        try:
            if letter is not None:
                return self._rendered(request, "letter.html", {"letter": _letter(letter)})
            return self._rendered(request, "lanes.html", {"lane": lane, **(_lane(lane) if lane else _overview())})
        except ClickException as error:
            status = 503 if isinstance(error, NoAnswerError) else 404
            return self._rendered(request, "problem.html", {"problem": error.format_message()}, status)

    def _rendered(self, request: Any, template: str, values: dict[str, Any], status: int = 200) -> Any:
        request.current_app = self.admin_site.name
        site = self.admin_site.each_context(request)
        title, may_change = "Lanes", self.has_change_permission(request)
        context = {**site, "title": title, "opts": self.opts, "may_change": may_change, **values}
        return TemplateResponse(request, f"celery_lanes/{template}", context, status=status)


def _overview() -> dict[str, Any]:
    [status] = _read("status", "--now")
    rows = []
    for name, figures in status["groups"].items():
        rows.append(_row(status, "group", name, figures))
        rows += [_row(status, "queue", queue, each) for queue, each in figures["queues"].items()]
    paused = [(*what.split(":", 1), moment(ms)) for what, ms in sorted(status["paused_since_ms"].items())]
    return {"states": STATES, "rows": rows, "busy": status["lanes"], "paused": paused, **_lists()}


def _row(status: dict[str, Any], kind: str, name: str, figures: dict[str, Any]) -> dict[str, Any]:
    is_paused = f"{kind}:{name}" in status["paused_since_ms"]
    states = [figures[state] for state in STATES]
    return {"kind": kind, "name": name, "is_paused": is_paused, "figures": figures, "states": states}


def _lane(key: str) -> dict[str, Any]:
    [shown] = _read("lane", at=key)
    paused_ms = shown["paused_since_ms"]
    return {"shown": shown, "paused_since": paused_ms and moment(paused_ms), **_lists(f"--lane={key}")}


def _lists(*options: str) -> dict[str, Any]:
    """The last dead letters, the newest first, and the next timers."""
    dead, timers = _read("dead", "list", *options), _read("timers", "list", *options)
    return {
        "dead": [{**each, "buried": moment(each["buried_ms"])} for each in reversed(dead)],
        "timers": [{**each, "due": moment(each["due_ms"])} for each in timers],
    }


def _letter(message_id: str) -> dict[str, Any]:
    [letter] = _read("dead", "show", at=message_id)
    errors = [{**each, "at": moment(each.get("at_ms", 0))} for each in letter["errors"]]
    contents = [json.dumps(each, indent=2, ensure_ascii=False) for each in (letter["message"], *letter["collected"])]
    return {**letter, "errors": errors, "contents": contents, "buried": moment(letter["buried_ms"])}


def _read(*words: str, at: str | None = None) -> list[Any]:
    return [
        json.loads(text)
        for text in run(current_app._get_current_object(), *words, "--json", *([] if at is None else ["--", at]))
    ]


def _query(**values: str) -> str:
    query = QueryDict(mutable=True)
    query.update({name: value for name, value in values.items() if value})
    return query.urlencode()
