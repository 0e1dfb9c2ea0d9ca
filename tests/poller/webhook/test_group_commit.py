"""The receiver with a slow, frozen, missing or full Redis; and a receiver that stops with requests in flight."""

from __future__ import annotations

import itertools
import signal
import socket
import time

import requests

from celery_lanes.embedded_server import Server, free_port, start_server
from celery_lanes.protocol import connect
from tests.poller.lanes import drain, lane, writes_held_up
from tests.poller.webhook.conftest import StartReceiver
from tests.poller.webhook.process import HEADER, PATH, SECRET, ReceiverProcess, update
from tests.support.waiting import WITHIN_S, until

#: The promise is 5 s; a busy machine gets 5 s more.
ANSWER_WITHIN_S = 5.0 + 5.0
#: The promise is 2 s; a busy machine gets 3 s more.
STOP_WITHIN_S = 2.0 + 3.0


def appends(redis_url: str) -> int:
    """The number of scripts that Redis has run."""
    with connect(redis_url) as client:
        return int(client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


def test_updates_during_an_append_share_the_next_one(start_receiver: StartReceiver, server: Server) -> None:
    # Given a receiver whose append waits for Redis
    receiver = start_receiver(WEBHOOK_REORDER=0)
    receiver.send(update(1))
    before = appends(receiver.redis_url)
    with writes_held_up(server) as append_waits:
        first = receiver.posts(update(2))
        until(append_waits)
        # When many more requests arrive
        more = receiver.posts(*(update(number, chat=number) for number in range(3, 53)))
        until(lambda: established(receiver) >= 51)
    # Then all are answered after one or two more appends
    assert {answer.result(WITHIN_S).status_code for answer in (*first, *more)} == {200}
    assert appends(receiver.redis_url) - before <= 4


def have_appended(redis_url: str) -> int:
    """The number of connections whose last command was an append."""
    with connect(redis_url) as client:
        return sum(each["cmd"] == "evalsha" for each in client.client_list())


def established(receiver: ReceiverProcess) -> int:
    return sum(each.status == "ESTABLISHED" for each in receiver.connections())


def test_stop_answers_open_requests_first(start_receiver: StartReceiver, server: Server) -> None:
    # Given two processes that are connected to Redis, and requests whose append waits for it
    receiver = start_receiver("--workers=2", WEBHOOK_REORDER=0)
    before = itertools.count(100)
    until(lambda: bool(receiver.send(update(next(before), chat=9))) and have_appended(receiver.redis_url) >= 2)
    with writes_held_up(server) as append_waits:
        answers = receiver.posts(*(update(number, chat=number) for number in (1, 2, 3)))
        until(append_waits)
        until(lambda: established(receiver) >= 3)
        # When the receiver is stopped
        receiver.signal(signal.SIGTERM)
    # Then they are answered (on a slow machine with 503 instead of 200), and it exits
    given = [answer.result(WITHIN_S).status_code for answer in answers]
    assert set(given) <= {200, 503}
    for number, status in enumerate(given, 1):
        assert status == 503 or lane(receiver.redis_url, number) == [number]
    assert receiver.exit_code() == 0


def test_unfinished_request_does_not_delay_the_stop(start_receiver: StartReceiver) -> None:
    # Given a receiver that waits for the rest of a body
    receiver = start_receiver()
    with socket.create_connection(("127.0.0.1", receiver.port)) as client:
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
        client.sendall(f"{head}{HEADER}: {SECRET}\r\n\r\n{{".encode())
        until(lambda: established(receiver) >= 1)
        # When it is stopped
        stopped_s = time.monotonic()
        receiver.signal(signal.SIGTERM)
        # Then it exits in time, and closes the connection without an answer
        assert receiver.exit_code() == 0
        assert time.monotonic() - stopped_s < STOP_WITHIN_S
        assert client.recv(1) == b""
    assert not receiver.told("ERROR")


def test_update_appended_before_a_kill_is_dropped_as_seen(start_receiver: StartReceiver, server: Server) -> None:
    # Given a receiver that is frozen while Redis executes its append
    receiver = start_receiver(WEBHOOK_REORDER=0)
    receiver.send(update(0, chat=9))
    with writes_held_up(server) as append_waits:
        [answer] = receiver.posts(update(1))
        until(append_waits)
        receiver.signal(signal.SIGSTOP)
    until(lambda: lane(receiver.redis_url) == [1])
    # When it is killed before it answers
    receiver.kill()
    assert isinstance(answer.exception(WITHIN_S), requests.ConnectionError)
    # Then Telegram repeats the update, and the next receiver answers and adds nothing
    following = start_receiver(WEBHOOK_REORDER=0)
    assert following.send(update(1)).status_code == 200
    assert lane(receiver.redis_url) == [1]
    following.stop()
    assert following.told("1 updates so far: 0 added, 1 seen before")


def test_frozen_redis_gives_503(start_receiver: StartReceiver, own_redis: Server) -> None:
    receiver = start_receiver(REDIS_URL=own_redis.url)
    assert receiver.is_ready()
    # When Redis answers nothing
    own_redis.process.send_signal(signal.SIGSTOP)
    began_s = time.monotonic()
    answer = receiver.send(update(1))
    # Then the update stays at Telegram, and the receiver is not ready
    assert time.monotonic() - began_s < ANSWER_WITHIN_S
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert not receiver.is_ready()
    # And when Redis answers again, so does the receiver
    own_redis.process.send_signal(signal.SIGCONT)
    until(lambda: receiver.send(update(1)).status_code == 200)
    until(lambda: lane(own_redis.url) == [1])
    assert receiver.is_ready()


def test_missing_redis_is_waited_for(start_receiver: StartReceiver, own_redis: Server) -> None:
    # Given no Redis
    port = free_port()
    receiver = start_receiver(REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert " WARNING " in receiver.tells("Redis does not answer")
    assert receiver.send(update(1)).status_code == 503
    assert not receiver.is_ready()
    # When Redis is started
    with start_server(own_redis.log.parent.parent / "late", port=port) as late:
        # Then updates are appended, without a restart of the receiver
        until(lambda: receiver.send(update(1)).status_code == 200)
        until(lambda: lane(late.url) == [1])
    receiver.tells("works again")


def test_full_backlog_gives_503(start_receiver: StartReceiver) -> None:
    receiver = start_receiver(MAX_PENDING=2)
    for number in (1, 2, 3):
        assert receiver.send(update(number)).status_code == 200
    # When the backlog is over the limit
    answer = receiver.send(update(4))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    receiver.tells("backlog 3 is over MAX_PENDING 2")
    # Then updates are refused until workers have emptied the lanes
    drain(receiver.redis_url)
    until(lambda: receiver.send(update(4)).status_code == 200)


def test_dead_process_is_replaced(start_receiver: StartReceiver) -> None:
    receiver = start_receiver("--workers=2")
    before = receiver.workers()
    before[0].kill()
    receiver.tells("a receiver process exited")
    until(lambda: len([each for each in receiver.workers() if each.is_running()]) == 2)
    assert receiver.send(update(1)).status_code == 200
    after = receiver.workers()
    receiver.kill()
    until(lambda: not any(each.is_running() for each in after))
