"""Every wait of the poller ends when a stop is requested."""

import os
import signal
import subprocess
import sys
from threading import Event, Thread, current_thread

import pytest

from chatlanes.poller.custom import CLOSE_GRACE_S
from chatlanes.poller.factory import BACKLOG_GRACE_S
from chatlanes.poller.leader_election import RESIGN_GRACE_S
from chatlanes.poller.loop import APPEND_GRACE_S, CONFIRM_GRACE_S
from chatlanes.poller.program import SEND_TRACES_WITHIN_S
from chatlanes.poller.runtime import DEFAULT_WITHIN_S, Stop, Stopping
from chatlanes.poller.webhook import serving
from chatlanes.updates.deployments import WITHDRAW_WITHIN_S
from tests.support.waiting import WITHIN_S


@pytest.fixture
def stop() -> Stop:
    return Stop()


@pytest.fixture
def never() -> Event:
    return Event()


def request_stop_after(stop: Stop, when: Event) -> None:
    def ask() -> None:
        when.wait(WITHIN_S)
        stop.request()

    Thread(target=ask).start()


def test_the_waits_of_a_shutdown_fit_into_its_limit() -> None:
    poller_s = max(APPEND_GRACE_S, CONFIRM_GRACE_S, RESIGN_GRACE_S, BACKLOG_GRACE_S, CLOSE_GRACE_S)
    for longest_s in (poller_s, serving.ANSWER_WITHIN_S):
        assert longest_s + WITHDRAW_WITHIN_S + SEND_TRACES_WITHIN_S <= DEFAULT_WITHIN_S


def test_run_returns_the_result(stop: Stop) -> None:
    assert stop.run(lambda: 7) == 7


def test_run_raises_the_error(stop: Stop) -> None:
    with pytest.raises(ZeroDivisionError):
        stop.run(lambda: 1 // 0)


def test_calls_share_a_thread_which_ends_with_the_stop(stop: Stop) -> None:
    first, second = stop.run(current_thread), stop.run(current_thread)
    assert first is second

    stop.request()

    first.join(WITHIN_S)
    assert not first.is_alive()


def test_a_call_after_the_request_is_not_given_to_a_thread_that_ends() -> None:
    for _ in range(300):  # the thread that was idle needs a moment to end
        stop = Stop()
        stop.run(int)
        stop.request()
        assert stop.run(lambda: 7, WITHIN_S) == 7


def test_call_in_progress_is_abandoned(stop: Stop, never: Event) -> None:
    begun = Event()

    def hang() -> None:
        begun.set()
        never.wait(WITHIN_S)

    request_stop_after(stop, begun)
    with pytest.raises(Stopping):
        stop.run(hang)
    never.set()


def test_call_that_ends_within_its_grace_is_completed(stop: Stop) -> None:
    asked = Event()

    def ask_and_finish() -> str:
        stop.request()
        asked.wait(0.01)
        return "done"

    assert stop.run(ask_and_finish, grace_s=WITHIN_S) == "done"


def test_grace_is_counted_from_the_request(stop: Stop, never: Event) -> None:
    stop.request()
    with pytest.raises(Stopping):
        stop.run(lambda: never.wait(WITHIN_S), grace_s=0.01)
    never.set()


def test_sleep_ends_when_requested(stop: Stop) -> None:
    now = Event()
    now.set()
    request_stop_after(stop, now)
    with pytest.raises(Stopping):
        stop.sleep(WITHIN_S)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_sleep_without_a_duration_returns(stop: Stop, seconds: float) -> None:
    stop.sleep(seconds)


def test_requesting_twice_is_harmless(stop: Stop) -> None:
    stop.request()
    stop.request()
    assert stop.is_requested


WAITS: dict[str, str] = {
    "sleeping": "stop.sleep(600)",
    "in a call that never ends": "stop.run(lambda: time.sleep(600))",
}


@pytest.mark.slow
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_process(wait: str, number: signal.Signals) -> None:
    program = f"""if True:
        import time
        from chatlanes.poller.runtime import Stop, Stopping
        stop = Stop()
        stop.request_on_signals()
        print("waiting", flush=True)
        try:
            {wait}
        except Stopping:
            print("stopped")
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, number)
        assert process.communicate(timeout=WITHIN_S)[0] == "stopped\n"
    assert process.returncode == 0
