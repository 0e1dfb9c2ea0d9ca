"""The Celery app, and its steps at the start and the end of a worker.

Guarantees that importing it reads no setting and opens no connection; a wrong setting ends the command with a sentence.
"""

from contextlib import suppress
from functools import cache
from typing import Any

from celery import Celery, signals
from celery.utils.log import get_task_logger
from kombu.utils.functional import maybe_list
from redis.exceptions import RedisError

from chatlanes import lanes, traces
from chatlanes.logs.process import give_up, warn_of_settings
from chatlanes.tasks import flower
from chatlanes.tasks.settings import celery_options, express_queues, settings
from chatlanes.updates.deployments import ForeignDeployment, Presence
from chatlanes.updates.queues import left_behind, unknown

logger = get_task_logger(__name__)

#: At the end of a worker, and of each of its children.
SEND_TRACES_WITHIN_S = 2.0


def worker_log(app: Celery) -> Any:
    """Called by Celery for `app.log`, so that importing the app reads no setting."""
    from chatlanes.logs.celery_log import WorkerLog

    return WorkerLog(app, settings())


app = Celery("chatlanes", set_as_current=True, log=worker_log)
lanes.install(app, fast=lambda: settings().fast == "1")


app.add_defaults(celery_options)


@signals.import_modules.connect(weak=False)
def set_up_flower(**_: Any) -> None:
    """Flower has read its options by then, and opens its port afterwards."""
    if flower.starts_here():
        flower.set_up(settings())


@signals.celeryd_init.connect(weak=False)
def start_log(instance: Any, **_: Any) -> None:
    if settings().log_format == "json":
        from chatlanes.logs.celery_log import say_all_in_json

        say_all_in_json(instance, settings())


@signals.celeryd_init.connect(weak=False)
def check_settings(**_: Any) -> None:
    warn_of_settings(settings())


@signals.celeryd_init.connect(weak=False)
def check_queues(options: dict[str, Any], **_: Any) -> None:
    """A queue that is none ends the worker here; Celery would, with a traceback."""
    asked = [name for option in ("queues", "exclude_queues") for name in maybe_list(options.get(option)) or ()]
    sentence = unknown(asked, set(app.amqp.queues))
    if sentence:
        give_up(settings(), sentence)


@signals.worker_ready.connect(weak=False)
def log_leftovers(**_: Any) -> None:
    now = settings()
    groups = {each.queue_group: each for each in (*now.served, now)}
    with suppress(RedisError):  # the worker says itself what is wrong with Redis
        for each in groups.values():
            for sentence in left_behind(app.lanes.store.client, each):
                logger.warning(sentence)


@signals.celeryd_init.connect(weak=False)
def remember_what_is_excluded(instance: Any, options: dict[str, Any], **_: Any) -> None:
    instance.excluded_queues = frozenset(options.get("exclude_queues") or ())


@signals.celeryd_after_setup.connect(weak=False)
def read_express(instance: Any, **_: Any) -> None:
    """Who reads some queue of a bot reads its express queue too, whatever -Q says: a payment must not wait for the one
    worker that was told to. `-X updates.express` leaves it out.
    """
    queues = instance.app.amqp.queues
    for express, others in express_queues(settings()).items():
        if express not in instance.excluded_queues and not set(others).isdisjoint(queues.consume_from):
            queues.select_add(queues[express])


@signals.worker_init.connect(weak=False)
def find_bot(**_: Any) -> None:
    """A worker one of whose bots does not import, or has no token, stops here, before it takes any update."""
    from chatlanes.tasks.bots import bots

    bots()


@signals.worker_init.connect(weak=False)
def enter_database(**_: Any) -> None:
    """Behind `find_bot`: it needs the tokens. A worker that another deployment's updates would come to stops here."""
    try:
        presence().enter()
    except ForeignDeployment as error:
        give_up(settings(), str(error))


@cache
def presence() -> Presence:
    return Presence("worker", settings())


@signals.worker_ready.connect(weak=False)
def stay_in_database(**_: Any) -> None:
    presence().stay()


@signals.worker_shutdown.connect(weak=False)
def leave_database(**_: Any) -> None:
    presence().leave()


@signals.celeryd_after_setup.connect(weak=False)
def start_traces(sender: str, **_: Any) -> None:
    """Before the pool forks, and after the bot was imported: it may have set them up by itself."""
    traces.start("worker", settings(), sender)


@signals.worker_process_init.connect(weak=False)
def start_traces_in_child(sender: str, **_: Any) -> None:
    """For children that are not forked and inherit nothing."""
    traces.start("worker", settings(), sender)


@signals.worker_process_shutdown.connect(weak=False)
@signals.worker_shutdown.connect(weak=False)
def stop_traces(**_: Any) -> None:
    traces.stop(SEND_TRACES_WITHIN_S)
