"""The Celery app: built on first use, errors in settings as one sentence, on lanes for every URL."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, forks
from tests.support.outside import IMPORTED, outside
from tests.support.process import Process

pytestmark = pytest.mark.slow

CELERY = ("-m", "celery", "-A", "chatlanes")


def run(
    directory: Path, *command: str, source: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments and settings, in a directory without a .env."""
    env = {**outside(), "PYTHONPATH": str(source or ROOT), **settings}
    return forks.run([sys.executable, *command], directory, env, IMPORTED)


def says(directory: Path, program: str, **settings: str) -> str:
    """The output of a program that must succeed."""
    ended = run(directory, "-c", program, **settings)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_lanes_import_nothing_of_the_other_packages(tmp_path: Path) -> None:
    others = {"chatlanes", "chatlanes_sandbox", "tasks", "settings", "poller"}
    loaded = says(tmp_path, "import sys, celery_lanes; print(*{m.partition('.')[0] for m in sys.modules})").split()
    assert "celery_lanes" in loaded
    assert others.isdisjoint(loaded)


def test_importing_the_app_reads_no_setting(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("QUEUES=none\n")
    assert (
        says(tmp_path, "import chatlanes.tasks.update; from chatlanes import app; print(app.main)", LEASE_SECONDS="0")
        == "chatlanes"
    )


def test_package_has_no_other_lazy_names(tmp_path: Path) -> None:
    ended = run(tmp_path, "-c", "import chatlanes; chatlanes.nothing")
    assert "AttributeError: module 'chatlanes' has no attribute 'nothing'" in ended.stderr


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://:SECRET@127.0.0.1:6379/0", "redis://:**@127.0.0.1:6379/0"),
    ],
)
def test_url_shows_a_hidden_password_only_if_there_is_one(tmp_path: Path, url: str, shown: str) -> None:
    assert says(tmp_path, "import chatlanes; print(chatlanes.app.connection().as_uri())", REDIS_URL=url) == shown


@pytest.mark.first_only
@pytest.mark.parametrize("command", ["worker", "flower"])
@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("QUEUES", "none", "QUEUES=none: allowed is a whole number from 1 to 1,024"),
        ("BOT_TOKEN", "SECRET", "BOT_TOKEN is wrong (its value is secret and not shown): allowed is"),
    ],
)
def test_invalid_setting_ends_each_command_with_a_sentence(
    tmp_path: Path, command: str, name: str, value: str, sentence: str
) -> None:
    ended = run(tmp_path, *CELERY, command, **{name: value})
    assert ended.returncode == 2
    assert ended.stderr.startswith(sentence)
    assert len(ended.stderr.splitlines()) == 1
    assert "SECRET" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(("settings", "is_warned"), [({}, True), ({"BOT": "chatlanes.demo.echo:handle"}, False)])
def test_a_worker_without_a_bot_warns_of_its_demo(tmp_path: Path, settings: dict[str, str], is_warned: bool) -> None:
    command, server = [sys.executable, *CELERY, "worker", "-P", "solo"], {"REDIS_URL": "redis://127.0.0.1:1/0"}
    given = {"BOT_TOKEN": "1:x", **server, **settings}
    worker = Process("worker", command, tmp_path, given, inherited=outside(), imported=IMPORTED)
    worker.tells("Cannot connect to redis")
    worker.end()
    assert ("BOT is not set: this worker runs a demo" in worker.log) == is_warned


@pytest.mark.parametrize(
    ("settings", "transport"),
    [
        ({"REDIS_URL": "redis://127.0.0.1:1/0"}, "celery_lanes.transport.transport LanesTransport"),
        ({"REDIS_URL": "rediss://127.0.0.1:1/0"}, "celery_lanes.transport.transport LanesTransport"),
        (
            {"REDIS_URL": "sentinel://127.0.0.1:1/0", "SENTINEL_MASTER": "main"},
            "celery_lanes.transport.transport LanesSentinelTransport",
        ),
    ],
)
def test_every_url_uses_the_lanes_transport(tmp_path: Path, settings: dict[str, str], transport: str) -> None:
    program = (
        "from chatlanes import app\n"
        "for connection in (app.connection_for_read(), app.connection_for_write()):\n"
        "    transport = connection.get_transport_cls()\n"
        "    print(transport.__module__, transport.__name__)"
    )
    assert says(tmp_path, program, **settings) == "\n".join([transport] * 2)


def test_tls_checks_certificates(tmp_path: Path) -> None:
    program = "from chatlanes import app; print(app.connection_for_write().ssl)"
    shown = says(tmp_path, program, REDIS_URL="rediss://127.0.0.1:1/0")
    assert shown == "{'ssl_cert_reqs': <VerifyMode.CERT_REQUIRED: 2>}"
    assert says(tmp_path, program, REDIS_URL="redis://127.0.0.1:1/0") in ("None", "False")


def test_worker_of_any_queue_also_reads_the_queues_for_payments_and_broadcasts(tmp_path: Path) -> None:
    program = (
        "from types import SimpleNamespace as New\n"
        "from chatlanes.tasks.app import app, read_queue_options, read_further_queues\n"
        "def read(*selected, without=()):\n"
        "    worker = New(app=app)\n"
        "    read_queue_options(instance=worker, options={'exclude_queues': without})\n"
        "    app.amqp.queues.select(selected)\n"
        "    read_further_queues(instance=worker)\n"
        "    print(*sorted(app.amqp.queues.consume_from), sep=',')\n"
        "read('updates.1')\n"
        "read('updates.1', without=['updates.express', 'broadcasts.0'])\n"
        "read('updates.express')\n"
        "read('celery')\n"
    )
    shown = says(tmp_path, program).split()
    assert shown == ["broadcasts.0,updates.1,updates.express", "updates.1", "updates.express", "celery"]


@pytest.mark.parametrize(
    ("begin", "requested", "current", "reads"),
    [
        ("", [], "chatlanes", True),
        ("from celery import Celery; Celery('shop')", [], "shop", False),
        ("from celery import Celery; Celery('shop')", ["celery"], "shop", True),
        ("from celery import Celery; Celery('shop', set_as_current=False)", [], "chatlanes", True),
    ],
    ids=["no other app", "an app of the project", "-Q celery", "not a current app"],
)
def test_shared_tasks_belong_to_the_app_of_the_project(
    tmp_path: Path, begin: str, requested: list[str], current: str, reads: bool
) -> None:
    # Given a worker whose bot has imported an app of its project, or none
    program = (
        "from types import SimpleNamespace as New\n"
        "from threading import Thread\n"
        "from celery import current_app, shared_task\n"
        "from celery.app.trace import setup_worker_optimizations\n"
        "from chatlanes.tasks.app import app, use_app_of_project\n"
        "import chatlanes.tasks.update\n"
        "def pack(): ...\n"
        "shared_task(name='shop.pack')(pack)\n"
        f"{begin}\n"
        "setup_worker_optimizations(app)\n"
        f"use_app_of_project(instance=New(requested_queues={requested}))\n"
        "print(current_app.main, 'celery' in app.amqp.queues.consume_from)\n"
        "Thread(target=lambda: print(current_app.main)).start()\n"
    )
    # Then shared_task publishes with it in every thread, and its tasks are left to its workers
    assert says(tmp_path, program) == f"{current} {reads}\n{current}"


def test_import_of_the_app_does_not_replace_the_app_of_a_web_server(tmp_path: Path) -> None:
    program = (
        "from celery import Celery, current_app; Celery('shop'); from chatlanes import app; print(current_app.main)"
    )
    assert says(tmp_path, program) == "shop"


def test_app_of_a_django_project_keeps_its_task_class_and_settings(tmp_path: Path) -> None:
    (tmp_path / "shopsettings.py").write_text(
        'CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"'
    )
    program = (
        "from celery import Celery\n"
        "from chatlanes import lanes\n"
        "app = Celery('shop')\n"
        "app.config_from_object('django.conf:settings', namespace='CELERY')\n"
        "lanes.install(app)\n"
        "def pack(): ...\n"
        "task = app.task(pack)\n"
        "print(isinstance(task, lanes.LaneTask), task.delay_on_commit.__name__, task.apply_async_on_commit.__name__)\n"
        "print(app.conf.beat_scheduler)"
    )
    shown = says(tmp_path, program, DJANGO_SETTINGS_MODULE="shopsettings")
    assert shown == "True delay_on_commit apply_async_on_commit\ndjango_celery_beat.schedulers:DatabaseScheduler"


def test_import_error_in_our_modules_keeps_its_traceback(tmp_path: Path) -> None:
    """Without our help, Celery reports that the module chatlanes.celery does not exist."""
    # Given a copy of the source with a module that imports a missing one
    broken = tmp_path / "broken"
    shutil.copytree(ROOT / "chatlanes", broken / "chatlanes", ignore=shutil.ignore_patterns("__pycache__"))
    (broken / "chatlanes/updates/connection.py").write_text("import not_installed_here\n")
    # When a worker is started with it
    ended = run(tmp_path / "broken", *CELERY, "worker", source=broken)
    # Then it reports the missing module and where it is imported
    assert ended.returncode != 0
    assert "No module named 'not_installed_here'" in ended.stderr
    assert "connection.py" in ended.stderr


def test_only_json_is_accepted(tmp_path: Path) -> None:
    names = (
        "accept_content",
        "task_serializer",
        "task_acks_late",
        "task_reject_on_worker_lost",
        "task_ignore_result",
        "task_create_missing_queues",
        "worker_send_task_events",
        "worker_cancel_long_running_tasks_on_connection_loss",
        "broker_connection_max_retries",
    )
    program = f"from chatlanes import app; print(*(app.conf[name] for name in {names}))"
    assert says(tmp_path, program) == "['json'] json False None True False False False None"


@pytest.mark.parametrize(("given", "limits"), [({}, "None None"), ({"UPDATE_TIMEOUT": "30"}, "30.0 40.0")])
def test_time_limits_follow_update_timeout(tmp_path: Path, given: dict[str, str], limits: str) -> None:
    program = "from chatlanes import app; print(app.conf.task_soft_time_limit, app.conf.task_time_limit)"
    assert says(tmp_path, program, **given) == limits


def test_queues_sets_the_number_of_lane_queues(tmp_path: Path) -> None:
    program = "from chatlanes import app; print(*((q.name, q.queue_arguments) for q in app.conf.task_queues))"
    shown = says(tmp_path, program, QUEUES="2")
    assert shown == (
        "('updates.express', {'x-lanes': True, 'x-lanes-first': True}) "
        "('updates.0', {'x-lanes': True}) ('updates.1', {'x-lanes': True}) "
        "('broadcasts.0', {'x-lanes': True, 'x-lanes-last': True}) ('celery', None)"
    )
