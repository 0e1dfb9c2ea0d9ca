"""`lanes.install` in an app that exists already: its own settings, base classes and ordinary tasks stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, Task
from celery.apps.beat import Beat
from celery.beat import Scheduler
from kombu import Connection, Queue
from kombu.transport import redis

import celery_lanes as lanes
from celery_lanes.install import DEFAULTS, check_transport
from celery_lanes.monitoring.events import BANNER_WORDS, show_events_in_banner

SETTINGS = {
    "beat_scheduler": "celery.beat:Scheduler",
    "worker_prefetch_multiplier": 1,
    "broker_channel_error_retry": False,
}
OLD_NAMES = {"beat_scheduler": "CELERYBEAT_SCHEDULER", "worker_prefetch_multiplier": "CELERYD_PREFETCH_MULTIPLIER"}


def upper(prefix: str = "") -> Any:
    return SimpleNamespace(**{prefix + name.upper(): value for name, value in SETTINGS.items()})


def set_each(app: Celery) -> None:
    for name, value in SETTINGS.items():
        setattr(app.conf, name, value)


#: Each way in which an app can be configured.
FORMS: dict[str, Callable[[Celery], None]] = {
    "object": lambda app: app.config_from_object(SimpleNamespace(**SETTINGS)),
    "namespace": lambda app: app.config_from_object(upper("CELERY_"), namespace="CELERY"),
    "old names": lambda app: app.config_from_object(
        SimpleNamespace(**{old: SETTINGS[new] for new, old in OLD_NAMES.items()})
    ),
    "update": lambda app: app.conf.update(SETTINGS),
    "attributes": set_each,
    "defaults": lambda app: app.add_defaults(SETTINGS),
}


def make(configure: Callable[[Celery], Any] | None, *, installs: str) -> Celery:
    """An app that is configured before or after lanes are installed; `late`: it was also used before."""
    app = Celery("shop", broker="redis://", set_as_current=False)
    if configure and installs != "before":
        configure(app)
    if installs == "late":
        assert app.conf.timezone is None
    lanes.install(app)
    if configure and installs == "before":
        configure(app)
    return app


@pytest.mark.parametrize("installs", ["before", "after", "late"])
@pytest.mark.parametrize("form", FORMS)
def test_settings_of_the_app_win(form: str, installs: str) -> None:
    app = make(FORMS[form], installs=installs)
    given = OLD_NAMES if form == "old names" else SETTINGS
    assert {name: app.conf[name] for name in given} == {name: SETTINGS[name] for name in given}
    assert Beat(app=app).scheduler_cls == "celery.beat:Scheduler"
    assert app.conf.broker_connection_max_retries is None  # not given


@pytest.mark.parametrize("installs", ["before", "late"])
def test_without_settings_lanes_have_their_own(installs: str) -> None:
    app = make(None, installs=installs)
    assert app.conf.beat_scheduler == "celery_lanes.transport.beat:LanesScheduler"
    assert app.conf.worker_prefetch_multiplier == 16
    assert app.conf.copy().worker_prefetch_multiplier == 16


@pytest.mark.parametrize("is_first", [True, False])
def test_other_apps_of_the_process_keep_kombus_transport(redis_url: str, is_first: bool) -> None:
    """Also on the same URL, and with kombu's pools, which all apps share."""

    def publish(to: Celery, queue: Queue, **headers: Any) -> None:
        with to.producer_or_acquire() as producer:
            producer.publish({}, routing_key=queue.name, declare=[queue], headers=headers)

    # Given an app without lanes, which publishes before or after lanes are installed in another app, as that app does
    plain, orders = Queue("plain", routing_key="plain"), Queue("orders", queue_arguments=lanes.QUEUE_ARGUMENTS)
    other = Celery("other", broker=redis_url, set_as_current=False)
    if is_first:
        publish(other, plain)
    app = Celery("shop", broker=redis_url, set_as_current=False)
    if is_first:
        publish(app, Queue("unread", routing_key="unread"))
    lanes.install(app)
    publish(app, orders, **lanes.headers(["customer:9"]))
    if not is_first:
        publish(other, plain)
    # Then only the app's message is in a lane, and each app uses its own transport
    assert app.lanes.store.pending() == 1
    assert app.lanes.store.client.llen("plain") == 1
    check_transport(app)
    assert app.connection().as_uri() == app.connection().clone().as_uri() == redis_url
    with other.connection_for_read() as connection, Connection(redis_url) as kombus:
        for each in (connection, kombus):
            assert type(each.transport) is redis.Transport
        message = plain(connection.default_channel).get()
        message.ack()
    assert app.lanes.store.client.keys("unacked*") == []
    for each in (app, other):
        each.close()


def settings_of(app: Celery) -> dict[str, Any]:
    return {name: value for name, value in app.conf.items() if name != "deprecated_settings"}


def test_no_setting_changes_but_the_listed_ones() -> None:
    app = Celery("shop", broker="redis://", set_as_current=False)
    before = settings_of(app)
    lanes.install(app)
    assert settings_of(app) == {**before, **DEFAULTS}


class OwnScheduler(Scheduler):
    """A scheduler as projects have them, for example that of django-celery-beat."""


def test_a_scheduler_of_the_app_stays(redis_url: str) -> None:
    app = Celery("shop", broker=redis_url, set_as_current=False)
    app.conf.beat_scheduler = f"{__name__}:OwnScheduler"
    app.conf.beat_schedule = {"pack": {"task": "pack", "schedule": 3600}}
    lanes.install(app)
    service = Beat(app=app).Service(app=app, scheduler_cls=Beat(app=app).scheduler_cls)
    assert type(service.get_scheduler()) is OwnScheduler
    assert "pack" in service.scheduler.schedule


def parts_of(app: Celery) -> list[Any]:
    """What `install` changes of an app. Celery makes two classes of a task for each app."""
    amqp, steps = app.amqp, {name: set(each) for name, each in app.steps.items()}
    kinds = {name: type(task).__mro__[2:] for name, task in app.tasks.items()}
    parts = [amqp.Connection, amqp.queues_cls, type(amqp.queues), type(amqp.router), app.events.dispatcher_cls]
    return [*parts, app.task_cls, app.control_cls, app.send_task.__name__, steps, kinds, settings_of(app)]


@pytest.mark.parametrize("is_first", [True, False])
def test_another_app_of_the_process_is_as_it_was(is_first: bool) -> None:
    stock = parts_of(Celery("other", broker="redis://", set_as_current=False))
    other = Celery("other", broker="redis://", set_as_current=False) if is_first else None
    app = Celery("shop", broker="redis://", set_as_current=False)
    lanes.install(app)
    assert parts_of(other or Celery("other", broker="redis://", set_as_current=False)) == stock


class Custom(Task):
    """A base class as projects have them."""

    def apply_async(self, *args: Any, **kwargs: Any) -> Any:
        return "published", super().apply_async(*args, **kwargs)

    def own(self) -> str:
        return self.name


@pytest.mark.parametrize("installs", ["before", "after"])
@pytest.mark.parametrize("of", ["app", "task"])
def test_base_classes_of_the_app_and_its_tasks_stay(redis_url: str, of: str, installs: str) -> None:
    app = Celery("shop", broker=redis_url, set_as_current=False, task_cls=Custom if of == "app" else None)

    @app.task(base=Custom if of == "task" else None, name="pack", shared=False)
    def pack() -> None:
        """Of the class that its app or itself names."""

    if installs == "after":
        app.finalize()
    lanes.install(app)
    task = app.tasks["pack"]
    assert isinstance(task, Custom)
    assert isinstance(task, lanes.LaneTask)
    assert task.own() == "pack"
    assert task.apply_async()[0] == "published"


def test_installing_twice_changes_no_class_twice(redis_url: str) -> None:
    app = Celery("shop", broker=redis_url, set_as_current=False, task_cls=Custom)
    lanes.install(app)
    kinds = {name: type(task) for name, task in app.tasks.items()}
    lanes.install(app)
    assert {name: type(task) for name, task in app.tasks.items()} == kinds


def test_the_banner_of_an_app_without_lanes_is_that_of_celery(redis_url: str) -> None:
    app, other = (Celery(name, broker=redis_url, set_as_current=False) for name in ("shop", "other"))
    lanes.install(app)
    workers = [
        SimpleNamespace(app=each, startup_info=lambda: f"task events: {BANNER_WORDS[0]}") for each in (app, other)
    ]
    for worker in workers:
        show_events_in_banner(worker)
    assert [worker.startup_info() for worker in workers] == [f"task events: {words}" for words in BANNER_WORDS[::-1]]
