"""Messages of dead or frozen workers and children run elsewhere, in order; a late run changes nothing."""

from __future__ import annotations

import os
import signal

import celery
import psutil
import pytest

from tests.lanes.worker.second_death import GATE
from tests.support.history import check_once_each, ids
from tests.support.lab import Lab, LabMaker, batch, numbered
from tests.support.lab_app import FAST
from tests.support.waiting import WITHIN_S, until

#: Leases that expire soon, and leases that do not expire during a test.
SHORT, ENDLESS = {"lease_seconds": 1}, {"lease_seconds": 3600}


def died(lab: Lab, message_id: str) -> int:
    return int(lab.client.hget(f"lanes:message:{message_id}", "died") or 0)


@pytest.mark.parametrize(("pool", "slots"), [("solo", 1), ("prefork", 2), ("threads", 8), ("gevent", 50)])
def test_the_messages_of_a_killed_worker_run_elsewhere_in_order(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a worker that runs a message in each slot, and another message behind each
    lab = make_lab(options=SHORT)
    running = [f"slow:{n}" for n in range(slots)]
    lab.publish_many({name: [name] for name in running}, gate="open")
    lab.publish_many({f"{name}/next": [name] for name in running})
    first = lab.worker(pool, slots)
    lab.started(*running)
    # When all its processes are killed, and another worker runs
    first.kill_all()
    lab.worker("threads", 8)
    # Then its messages are handed out again when their leases have expired, and the death is counted
    lab.started(running[0])
    until(lambda: len(ids(lab.history, "start")) >= slots + min(slots, 8))
    again = ids(lab.history, "start")[slots:]
    assert {died(lab, message_id) for message_id in again} == {1}
    # And all messages run, each lane in order
    lab.open("open")
    lab.drained()
    second = [event for event in lab.history if event.worker == "w2"]
    check_once_each(second, lab.lanes)


@pytest.mark.parametrize(("pool", "slots"), [("solo", 1), ("prefork", 2), ("threads", 8), ("gevent", 50)])
def test_a_lease_is_renewed_while_its_handler_computes(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a handler that never yields, and a worker that would run its message again
    lab = make_lab(options=SHORT)
    lab.publish("busy", ["lane"], task="compute", gate="open")
    lab.worker(pool, slots)
    lab.started("busy")
    lab.worker("threads", 8)
    # When it runs for several leases
    first_ms = lab.client.zscore("lanes:leases", "busy")
    until(lambda: (lab.client.zscore("lanes:leases", "busy") or 0) > first_ms + 3000)
    # Then the message has run only once
    lab.open("open")
    lab.drained()
    lab.check_once_each()
    assert lab.count("expired") == 0


def test_children_end_when_their_main_process_is_killed(lab: Lab) -> None:
    # Given a prefork worker whose children run messages
    lab.publish_many({"a": ["a"], "b": ["b"]}, gate="open")
    worker = lab.worker("prefork", 2)
    lab.started("a", "b")
    children = worker.children()
    assert {event.pid for event in lab.history} <= set(children)
    # When only its main process is killed
    worker.kill_main()
    # Then no child continues without a renewed lease
    until(lambda: not any(map(_is_alive, children)))


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("how", ["killed", "exited"])
def test_the_message_of_a_dead_child_is_released_at_once(make_lab: LabMaker, how: str) -> None:
    # Given long leases, a message that kills its process once, one behind it, and one of another lane
    lab = make_lab(options=ENDLESS)
    lab.publish("beside", ["beside"], gate="open")
    lab.publish("deadly", ["lane"], task="die", how=how, times=1)
    lab.publish("behind", ["lane"])
    # When a prefork worker runs them
    lab.worker("prefork", 2)
    lab.ended("deadly", "behind")
    # Then the deadly one runs again, before the one behind it, and the other lane is not affected
    lab.open("open")
    lab.drained()
    assert [name for name in ids(lab.history, "start") if name != "beside"] == ["deadly", "deadly", "behind"]
    check_once_each([event for event in lab.history if event.id == "beside"], {"beside": ["beside"]})


@pytest.mark.parametrize("fast", ["0", "1"])
def test_a_child_that_dies_while_another_is_cleaned_up_is_a_death(
    make_lab: LabMaker, monkeypatch: pytest.MonkeyPatch, fast: str
) -> None:
    # Given a message in the first child, and one that was sent to the second child, which is stopped
    monkeypatch.setenv("FAST", fast)
    lab = make_lab(options=ENDLESS)
    worker = lab.worker("prefork", 2, "-I", "tests.lanes.worker.second_death")
    first = min(worker.children())
    for name in ("a", "c"):
        lab.publish(name, [name], gate=name)
    lab.started("a", "c")
    [of_second] = [event.id for event in lab.history if event.pid != first]
    lab.open(of_second)
    lab.ended(of_second)
    os.kill(max(worker.children()), signal.SIGSTOP)
    lab.publish("b", ["b"], gate="open")
    worker.tells("Task run[b] received")
    assert lab.app.control.ping(timeout=WITHIN_S, limit=1)  # its loop has then written the message to the child
    # When the first one dies, and then the second one, which has just begun
    lab.open(GATE)
    os.kill(first, signal.SIGKILL)
    # Then its message runs again with another fence: with the same one, its journal would not know the first run
    until(lambda: ids(lab.history, "start").count("b") == 2)
    assert died(lab, "b") == 1
    for gate in ("a", "c", "open"):
        lab.open(gate)
    lab.drained()


def test_children_that_exit_after_one_task_run_each_message_once(make_lab: LabMaker) -> None:
    # Given children that are sent more messages than they run, so these are put back
    lab = make_lab(options=ENDLESS)
    lab.publish_many(numbered(80, lambda n: [f"lane {n % 12}"]))
    lab.worker("prefork", 4, "--max-tasks-per-child", "1")
    # Then none is put back twice, however many exit meanwhile
    lab.drained()
    check_once_each(lab.history, lab.lanes)


@pytest.mark.skipif(
    celery.VERSION < (5, 7), reason="Celery 5.6 replaces it after billiard's wait of half a minute, which is off here"
)
def test_a_child_whose_files_were_closed_is_replaced(make_lab: LabMaker) -> None:
    # Given a prefork worker with one child, whose task closes the child's pipes to its worker
    lab = make_lab(options=ENDLESS)
    lab.publish("closes", ["lane"], task="close_everything")
    lab.publish_many(numbered(20, lambda n: ["lane"]))
    # When it runs
    lab.worker("prefork", 1)
    # Then the following messages run in another child, at once and in order
    lab.drained()
    closes, *others = [event for event in lab.history if event.what == "start"]
    assert [event.id for event in others if event.id != "closes"] == [f"m{n}" for n in range(20)]
    assert closes.pid not in {event.pid for event in others}


@pytest.mark.parametrize(("pool", "slots"), [("solo", 1), ("threads", 8), ("gevent", 50)])
def test_a_worker_whose_files_were_closed_exits(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a worker that runs tasks in its main process, one of which closes all files
    lab = make_lab(options=SHORT)
    lab.publish("closes", ["lane"], task="close_everything")
    lab.publish("behind", ["lane"])
    broken = lab.worker(pool, slots, is_awaited=False)
    # Then it exits, and another worker runs its messages
    assert broken.exit_code() != 0
    lab.worker("threads", 2)
    lab.drained()
    assert "behind" in ids(lab.history, "end")


def test_a_childs_death_repeats_only_running_messages(make_lab: LabMaker) -> None:
    # Given a child that receives many quick messages ahead, and writes their results in batches
    lab = make_lab(options=ENDLESS)
    lab.publish_many(numbered(200, lambda n: [f"quick:{n}"]))
    lab.worker("prefork", 1)
    lab.drained()
    # When some of them kill it
    deadly = [f"deadly:{n}" for n in range(4)]
    with lab.app.producer_pool.acquire(block=True) as producer, batch(producer):
        for n in range(80):
            lab.send(f"other:{n}", [f"other:{n}"], producer=producer)
            if n % 20 == 10:
                name = deadly[n // 20]
                lab.send(name, [name], task="die", kwargs={"how": "killed", "times": 1}, producer=producer)
    lab.drained()
    # Then only these run again
    history = lab.history
    assert [ids(history, "start").count(name) for name in deadly] == [2] * 4
    others = [f"other:{n}" for n in range(80)]
    assert sorted(name for name in ids(history, "start") if name.startswith("other")) == sorted(others)
    assert sorted(name for name in ids(history, "end") if name.startswith("other")) == sorted(others)
    assert lab.count("refused") == 0


@pytest.mark.skipif(not FAST, reason="Celery's own pool ends a child whose start of a task it has not read")
def test_a_pool_that_shrinks_ends_no_child_that_runs(make_lab: LabMaker) -> None:
    lab = make_lab()
    worker = lab.worker("prefork", 4)
    for first in range(0, 4_000, 200):
        lab.publish_many({f"m{n}": [f"lane:{n}"] for n in range(first, first + 200)})
        for change in (lab.app.control.pool_shrink, lab.app.control.pool_grow):
            change(2, reply=True, limit=1)
    lab.drained()
    lab.check_once_each()
    assert "Worker exited prematurely" not in worker.log


def test_a_message_that_always_kills_its_process_is_buried(make_lab: LabMaker) -> None:
    lab = make_lab(options=ENDLESS | {"max_deaths": 3})
    lab.publish("deadly", ["lane"], task="die", how="exited", times=99)
    lab.publish("behind", ["lane"])
    lab.worker("prefork", 2)
    lab.ended("behind")
    lab.drained()
    assert ids(lab.history, "start") == ["deadly"] * 3 + ["behind"]
    assert lab.dead() == ["deadly"]
    assert "its worker died 3 times" in lab.problem("deadly")


@pytest.mark.parametrize(("pool", "slots"), [("solo", 1), ("prefork", 2), ("threads", 8), ("gevent", 50)])
def test_a_frozen_worker_changes_nothing_after_its_lease(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a worker that is frozen while it runs a message, which another worker runs again meanwhile
    lab = make_lab(options=SHORT)
    lab.publish("slow", ["lane"], gate="open")
    lab.publish("behind", ["lane"])
    frozen = lab.worker(pool, slots)
    lab.started("slow")
    frozen.freeze()
    lab.worker("threads", 8)
    until(lambda: ids(lab.history, "start") == ["slow", "slow"])
    refused = lab.count("refused")
    # When it is thawed, ends its run, and stops
    lab.open(f"open {frozen.name}")
    frozen.thaw()
    until(lambda: ids(lab.history, "end") == ["slow"])
    frozen.stop()
    # Then its settle was refused, or it noticed before that its lease was lost
    assert lab.count("refused") > refused or "lost the lease of slow" in frozen.log
    # And the other worker still holds the message, with the next one behind it
    assert lab.leases() == ["slow"]
    assert lab.client.zrange("lanes:lane:lane", 0, -1) == [b"slow", b"behind"]
    # And it runs both to their end
    lab.open("open")
    lab.drained()
    assert [each.id for each in lab.history if each.worker == "w2" and each.what == "end"] == ["slow", "behind"]
    assert lab.count("settled") == 2


def test_a_late_failure_of_a_frozen_child_changes_nothing(make_lab: LabMaker) -> None:
    # Given a prefork worker that is frozen while its children run two messages, which another worker runs meanwhile
    lab = make_lab(options=SHORT)
    for how in ("retry", "bury"):
        lab.publish(how, [how], task="retry_or_bury", how=how, gate="open")
    frozen = lab.worker("prefork", 2)
    lab.started("retry", "bury")
    frozen.freeze()
    lab.worker("threads", 8)
    lab.ended("retry", "bury")
    # When its children are thawed, and try to retry the one and bury the other
    frozen.thaw()
    lab.open("open")
    until(lambda: set(ids(lab.history, "LOST")) == {"retry", "bury"})
    # Then both attempts are refused
    lab.drained()
    assert (lab.count("settled"), lab.count("retried"), lab.count("buried")) == (2, 0, 0)


def test_only_a_message_that_kills_its_worker_is_buried(make_lab: LabMaker) -> None:
    # Given seven messages that run in one process together with one that kills it, in two workers in turn
    lab = make_lab(options={"lease_seconds": 2, "max_deaths": 4})
    beside = [f"beside:{n}" for n in range(7)]
    for name in beside[:4]:
        lab.publish(name, [name], gate="open")
    lab.publish("deadly", ["lane"], task="die", how="exited", times=99)
    lab.publish("behind", ["lane"])
    for name in beside[4:]:
        lab.publish(name, [name], gate="open")
    for _ in range(2):
        lab.worker("threads", 8).exit_code()
    # When all of them are suspects, so that each is handed out alone
    lab.open("open")
    while "deadly" not in lab.dead():
        worker = lab.worker("threads", 8)
        until(lambda worker=worker: not worker.is_running() or lab.count("pending") == 0)
    # Then only the deadly one is buried, and all others run to their end
    lab.drained()
    assert lab.dead() == ["deadly"]
    assert "its worker died 4 times" in lab.problem("deadly")
    assert ids(lab.history, "start").count("deadly") == 4
    assert set(ids(lab.history, "end")) == {*beside, "behind"}


def test_a_frozen_child_does_not_start_after_its_lease(make_lab: LabMaker) -> None:
    # Given a prefork worker whose only child is frozen when it receives a message
    lab = make_lab(options=SHORT)
    lab.publish("first", ["lane"])
    worker = lab.worker("prefork", 1)
    lab.drained()
    [child] = worker.children()
    os.kill(child, signal.SIGSTOP)
    lab.publish("late", ["lane"])
    until(lambda: lab.leases() == ["late"])
    # When the lease expires, because the message has not started, and another worker runs the message
    lab.worker("solo")
    lab.ended("late")
    # Then the thawed child does not run it
    os.kill(child, signal.SIGCONT)
    worker.tells("not run: the lease of late is over")
    if celery.VERSION < (5, 7):  # it may not end while a result is on its way (docs/fast.md)
        worker.tells("Task run[late] ignored")
        worker.kill_all()
    else:
        worker.stop()
    assert ids(lab.history, "start") == ["first", "late"]
    assert died(lab, "late") == 0


def test_children_end_with_a_parent_that_dies_early(make_lab: LabMaker) -> None:
    # Given children that have started, and have not yet asked the kernel to be killed with their parent
    worker = make_lab(ends_with_parent=False).worker("prefork", 3, is_awaited=False)
    until(lambda: len(worker.children()) == 3)
    children = [psutil.Process(child) for child in worker.children()]
    # When their parent is killed, then they exit
    worker.kill_main()
    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


def test_a_suspect_in_a_backlog_delays_no_other(lab: Lab, pool: tuple[str, int]) -> None:
    # Given a backlog whose second message was running in two workers that died
    backlog = numbered(300, lambda n: [f"order:{n}"])
    first, suspect, *rest = backlog
    for each in (first, suspect):
        lab.publish(each, backlog[each])
    for _ in range(2):
        turned = lab.store.turn(["orders.0"], holder="dies", lease_ms=60_000, room=2)
        fences = {leased.id: leased.fence for leased in turned.leased}
        lab.store.release([(suspect, fences[suspect])], died=True)
        lab.store.release([(first, fences[first])])
    for each in rest:
        lab.publish(each, backlog[each])
    # When a worker starts, then all messages run, also the suspect
    lab.worker(*pool)
    lab.drained()
    lab.check_once_each()
    assert lab.dead() == []
