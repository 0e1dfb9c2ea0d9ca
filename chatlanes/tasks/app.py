"""The Celery app and its handlers for worker startup and shutdown.

Importing it reads no settings and opens no connection. An invalid setting ends the command with one sentence.
"""

import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from celery import Celery, _state, current_app, signals
from celery.utils.log import get_task_logger
from kombu.utils.functional import maybe_list
from redis.exceptions import RedisError

import celery_lanes as lanes
from chatlanes import traces
from chatlanes.logs.process import give_up, warn_of_settings
from chatlanes.settings.spelling import CHECKED
from chatlanes.tasks import flower
from chatlanes.tasks.settings import ORDINARY_QUEUE, broadcast_queues, celery_options, express_queues, settings
from chatlanes.updates.deployments import ForeignDeployment, Presence
from chatlanes.updates.queues import left_behind, unknown
from chatlanes.updates.timer_texts import TIMER_TEXTS
from chatlanes.updates.words import WORDS

logger = get_task_logger(__name__)

#: Applies when a worker stops, and when one of its children does.
SEND_TRACES_WITHIN_S = 2.0


def worker_log(app: Celery) -> Any:
    """Celery calls this for `app.log`, so importing the app reads no settings."""
    from chatlanes.logs.celery_log import WorkerLog

    return WorkerLog(app, settings())


class BotApp(Celery):
    """A bot's project may have a Celery app of its own. That one stays the current app, with which `shared_task`
    publishes.
    """

    def set_current(self) -> None:
        if _state._tls.current_app is None:
            super().set_current()


app = BotApp("chatlanes", log=worker_log)
lanes.install(
    app,
    fast=lambda: settings().fast == "1",
    words=WORDS,
    commands="chatlanes.cli.commands:BotCommands",
    timer_texts=TIMER_TEXTS,
)
app.add_defaults(celery_options)


@signals.import_modules.connect(weak=False)
def set_up_flower(**_: Any) -> None:
    """Runs after Flower has read its options and before it opens its port."""
    if flower.starts_here():
        flower.set_up(settings())


@signals.celeryd_init.connect(weak=False)
def start_log(instance: Any, **_: Any) -> None:
    if settings().log_format == "json":
        from chatlanes.logs.celery_log import say_all_in_json

        say_all_in_json(instance, settings())
    warn_of_settings(settings())


@signals.celeryd_init.connect(weak=False)
def read_queue_options(instance: Any, options: dict[str, Any], **_: Any) -> None:
    """Keeps -Q and -X for the handlers below. An unknown queue ends the worker with one sentence; Celery itself would
    print a traceback.
    """
    requested, excluded = (maybe_list(options.get(option)) or [] for option in ("queues", "exclude_queues"))
    instance.requested_queues, instance.excluded_queues = frozenset(requested), frozenset(excluded)
    if sentence := unknown([*requested, *excluded], set(app.amqp.queues)):
        give_up(settings(), sentence)


@signals.worker_ready.connect(weak=False)
def log_leftovers(**_: Any) -> None:
    now = settings()
    groups = {each.queue_group: each for each in (*now.served, now)}
    with suppress(RedisError):  # the worker logs Redis errors elsewhere
        for each in groups.values():
            for sentence in left_behind(app.lanes.store.client, each):
                logger.warning(sentence)


@signals.celeryd_after_setup.connect(weak=False)
def read_further_queues(instance: Any, **_: Any) -> None:
    """A worker that reads any queue of a bot also reads the bot's queues for payments and for broadcasts, whatever -Q
    says, so that they do not depend on one worker. `-X updates.express` excludes one.
    """
    queues = instance.app.amqp.queues
    for name, others in [*express_queues(settings()).items(), *broadcast_queues(settings()).items()]:
        if name not in instance.excluded_queues and not set(others).isdisjoint(queues.consume_from):
            queues.select_add(queues[name])


@signals.celeryd_after_setup.connect(weak=False)
def warn_of_demo(**_: Any) -> None:
    """The sandbox runs the demo on purpose, and sets CHECKED."""
    now = settings()
    if now.bot_token and "bot" not in now.model_fields_set and CHECKED not in os.environ:
        logger.warning("BOT is not set: this worker runs a demo, which repeats each message. Set BOT=mybot:handle")


@signals.worker_init.connect(weak=False)
def find_bot(**_: Any) -> None:
    """If a bot cannot be imported or has no token, the worker stops here, before it fetches any update."""
    from chatlanes.tasks.bots import bots

    bots()


@signals.worker_init.connect(weak=False)
def close_connections_of_django(sender: Any, **_: Any) -> None:
    """After each task, the connections to Django's databases are closed, as in every Celery worker of a Django project.

    Runs after `find_bot`, because the bot may have set up Django. Celery sets this up itself only if it finds
    DJANGO_SETTINGS_MODULE earlier, and never for the thread on which Django's ORM runs for coroutines.
    """
    django = sys.modules.get("django")
    if django is None or not django.apps.apps.ready:
        return
    from asgiref.sync import SyncToAsync
    from celery.fixups.django import DjangoWorkerFixup
    from django.db import close_old_connections

    if not any(app._fixups):
        sender.django = DjangoWorkerFixup(app)  # signals hold no reference to it
        sender.django.worker = sender
        sender.django.install()
    thread = SyncToAsync.single_thread_executor
    signals.task_prerun.connect(lambda **_: thread.submit(close_old_connections), weak=False)


@signals.worker_init.connect(weak=False)
def announce_deployment(**_: Any) -> None:
    """Runs after `find_bot`, because it needs the tokens. A worker that would receive another deployment's updates
    stops here.
    """
    try:
        presence().enter()
    except ForeignDeployment as error:
        give_up(settings(), str(error), code=1)


@cache
def presence() -> Presence:
    return Presence("worker", settings())


@signals.worker_ready.connect(weak=False)
def keep_announcing(**_: Any) -> None:
    presence().stay()


@signals.worker_ready.connect(weak=False)
def watch_schedules(**_: Any) -> None:
    from chatlanes.tasks.bots import bots
    from chatlanes.tasks.schedules import watcher

    watching = watcher(bots(), settings())
    watching.start()
    signals.worker_shutdown.connect(lambda **_: watching.stop(), weak=False)


@signals.worker_shutdown.connect(weak=False)
def withdraw_announcement(**_: Any) -> None:
    presence().leave()


@signals.celeryd_after_setup.connect(weak=False)
def use_app_of_project(instance: Any, **_: Any) -> None:
    """If the bot's project has a Celery app of its own, make it the current app of every thread and child: then
    `shared_task` publishes to the queues of the project.

    The workers of the project run its tasks. Their queue may be the ordinary one, in this Redis: then this worker would
    fetch tasks that it does not know, and Celery discards those.
    """
    project = current_app._get_current_object()
    if project is app:
        return

    def use(**_: Any) -> None:
        project.set_current()
        project.set_default()

    use()
    signals.worker_process_init.connect(use, weak=False)
    if ORDINARY_QUEUE not in instance.requested_queues:
        app.amqp.queues.deselect(ORDINARY_QUEUE)
        logger.info(
            "not reading the queue %s: it belongs to the Celery app of the project, %s", ORDINARY_QUEUE, project.main
        )


@signals.celeryd_after_setup.connect(weak=False)
@signals.worker_process_init.connect(weak=False)
def start_traces(sender: str, **_: Any) -> None:
    """Runs after the bot is imported, because the bot may set up tracing itself, and before the pool forks; again in a
    child, because one that is spawned inherits nothing.
    """
    traces.start("worker", settings(), sender)


@signals.worker_process_shutdown.connect(weak=False)
@signals.worker_shutdown.connect(weak=False)
def stop_traces(**_: Any) -> None:
    traces.stop(SEND_TRACES_WITHIN_S)
