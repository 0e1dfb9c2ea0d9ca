"""A turn that is asked for while messages of the last one still run: nothing waits for whoever cannot read it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from kombu import Consumer
from redis.exceptions import ConnectionError  # noqa: A004 - redis-py's word

from chatlanes.lanes.fast.fetch_ahead import EarlyTurn
from chatlanes.lanes.leases.books import Pool
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.transport.publish import NewMessage
from tests.lanes.worker.test_deaths import died
from tests.support.lab import Lab, LabMaker, numbered
from tests.support.waiting import until


def test_the_keeper_reads_it_when_it_is_late_and_the_loop_reads_itself_when_it_is_back() -> None:
    early, here, asked = EarlyTurn(), False, []

    def give_back() -> bool:
        asked.append(early.is_under_way)
        return here

    early.take_back(after_s=0)
    early.asked(clock.now_s(), give_back)
    early.take_back(after_s=60)
    assert asked == []
    # While its answer has not come, the keeper tries again
    early.take_back(after_s=0)
    early.take_back(after_s=0)
    here = True
    early.take_back(after_s=0)
    assert asked == [True] * 3
    assert not early.is_under_way
    # Once the loop is back, the keeper leaves it alone
    early.asked(clock.now_s(), give_back)
    early.over()
    early.take_back(after_s=0)
    assert asked == [True] * 3


def test_the_loop_waits_while_the_keeper_reads_and_one_that_fails_is_over() -> None:
    early, reading, go_on = EarlyTurn(), Event(), Event()

    def give_back() -> bool:
        reading.set()
        go_on.wait(60)
        raise OSError("gone")

    with ThreadPoolExecutor(2) as threads:
        early.asked(clock.now_s(), give_back)
        keeper = threads.submit(early.take_back, 0)
        assert reading.wait(60)
        loop = threads.submit(early.over)
        early.take_back(after_s=0)  # by nobody else meanwhile
        assert not loop.done()
        go_on.set()
        loop.result(60)
        with pytest.raises(OSError, match="gone"):
            keeper.result(60)
    assert not early.is_under_way


def test_the_lease_keeper_gives_back_what_nobody_has_read(lab: Lab) -> None:
    settler = lab.app.lanes.settler
    settler.room.pool = Pool(slots=lambda: 2, forks=False, spare=15, runs_here=True)
    ids = ["first", "second", "third"]
    lab.store.append([NewMessage(each, "orders.0", "{}", [each]) for each in ids])
    queue = next(queue for queue in lab.app.conf.task_queues if queue.name == "orders.0")
    with lab.app.connection_for_read() as connection, connection.channel() as channel:
        lab.store.turn([], holder="nobody", lease_ms=1, room=0)  # Redis knows the script
        # Given a loop that asks for two messages while another one runs, and does not come back
        Consumer(channel, queues=[queue], callbacks=[lambda *_: None]).consume()
        channel.turns.step_early()
        assert settler.early_turn.is_under_way
        # Then the lease keeper gives them back, as if nobody had had them
        until(lambda: lab.count("released") == 2)
        assert {lab.state_of(each) for each in ids} == {"ready"}
        assert [died(lab, each) for each in ids] == [0, 0, 0]
        assert not settler.early_turn.is_under_way
        # And the loop, when it is back, finds nothing to read, and asks again
        channel.turns.handlers["TURN"]()
        channel.turns.step()
        until(lambda: len(lab.leases()) == 2)


def test_a_loop_hears_of_the_end_of_a_connection_on_which_nothing_is_under_way(lab: Lab) -> None:
    lab.app.lanes.settler.room.pool = Pool(slots=lambda: 2, forks=False, spare=15)
    queue = next(queue for queue in lab.app.conf.task_queues if queue.name == "orders.0")
    with lab.app.connection_for_read() as connection, connection.channel() as channel:
        Consumer(channel, queues=[queue], callbacks=[lambda *_: None]).consume()
        # Given a turn that was answered
        channel.turns.step()
        line = channel.turns._turn
        until(lambda: line.has_answer(within_s=0))
        channel.turns.handlers["TURN"]()
        assert not line.is_waiting
        # When the server ends its connection
        address, port = line.client.connection._sock.getsockname()
        lab.client.client_kill_filter(addr=f"{address}:{port}")
        # Then who reads is told, and does not come back for it again and again
        with pytest.raises(ConnectionError):
            channel.turns.handlers["TURN"]()


def test_what_comes_early_does_not_wait_behind_a_slow_one(make_lab: LabMaker) -> None:
    # Given a backlog of quick messages in which slow ones stand, and workers that run on their loops' own threads
    lab = make_lab(options={"lease_seconds": 600})
    slow = [f"slow:{n}" for n in range(3)]
    quick = numbered(400, lambda n: [f"quick:{n}"])
    names = list(quick)
    for n, name in enumerate(slow):
        lab.publish_many({each: quick[each] for each in names[n * 100 : (n + 1) * 100]})
        lab.publish_many({name: [name]}, gate="open")
    lab.publish_many({each: quick[each] for each in names[300:]})
    for _ in slow:
        lab.worker("solo", 1, is_awaited=False)
    # When each of them is held up by a slow one
    lab.started(*slow)
    # Then another worker runs all that is left, however long their leases are
    lab.worker("threads", 4)
    lab.ended(*quick)
    until(lambda: set(lab.leases()) == set(slow))
    lab.open("open")
    lab.drained()
    lab.check_once_each()
