"""Carries out the faults of a plan.

A fault with a duration (a freeze, a hole) ends by itself while other faults continue, so faults overlap.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.protocol import keys
from chaos.evidence.records import InjectedFault
from chaos.faults.plan import PlannedFault
from chaos.faults.proxy import Link, Network
from chaos.systems.broadcast import BroadcastCommands
from chaos.systems.processes import Processes
from chatlanes_sandbox.simulator import Simulator

#: The longest freeze or hole, in leases: some are shorter than a lease, most are longer.
LONGEST_LEASES = 2.0
#: The longest freeze of Redis: long enough for every lease to expire and for clients to give up.
LONGEST_LEASES_OF_REDIS = 1.5
#: An outage is longer than a lease and twice the clients' timeout of 5 s, so handlers in flight give up.
OUTAGE_S = 14.0
#: Limits after SIGTERM to all parts while Redis is frozen. The promises are 10 s and 2 s; the limits are larger because
#: the machine is busy. They include the time a handler needs to notice.
WORKER_STOPS_WITHIN_S, POLLER_STOPS_WITHIN_S = 20.0, 5.0
#: The number of consecutive calls that fail: less than MAX_ATTEMPTS, because innocent updates must not be buried.
FAILED_CALLS = 4
#: Waits shorter than FLOOD_WAIT are spent in the handler; after longer ones the update is handed out again.
LONGEST_FLOOD_S = 9
#: A start is killed after at most this many times of what one has taken: some have ended before.
LONGEST_STARTS = 1.5

#: Redis may be frozen, so give up soon.
_IN_A_SECOND = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, "max_retries": 1}


@dataclass
class FaultInjector:
    """`links` by part and server ("redis", "telegram")."""

    processes: Processes
    network: Network
    links: dict[tuple[str, str], Link]
    folder: Path
    redis: Server
    telegram: Simulator
    lease_s: float
    commands: BroadcastCommands
    pollers: Collection[str] = ()
    faults: list[InjectedFault] = field(default_factory=list)
    _ends: list[threading.Thread] = field(default_factory=list)

    def inject(self, planned: PlannedFault) -> InjectedFault:
        """Carries out the fault and records it."""
        at_s, for_s, pids, updates = time.time(), 0.0, tuple[int, ...](), tuple[int, ...]()
        if planned.what in ("kill_all", "kill_main", "kill_child"):
            pids = self._kill(planned)
            at_s = time.time()  # the killed processes write nothing after this
        elif planned.target == "redis":
            for_s = self._on_redis(planned)
        elif planned.target == "telegram":
            self._on_telegram(planned)
        elif planned.target == "broadcast":
            for_s = self._on_broadcast(planned)
        elif planned.what == "terminate":
            updates = self._terminate(planned)
        elif planned.what.startswith(("cut_", "hole_", "lose_")):
            for_s = self._on_link(planned)
        elif planned.what == "freeze":
            for_s = self._lasting(planned, LONGEST_LEASES, lambda: self.processes.thaw(planned.target))
            self.processes.freeze(planned.target)
        else:
            self.processes.stop(planned.target)
        self.faults.append(InjectedFault(at_s, planned.what, planned.target, for_s, pids, updates))
        return self.faults[-1]

    def end(self) -> None:
        """Waits until every fault with a duration is over."""
        for each in self._ends:
            each.join()

    def _kill(self, planned: PlannedFault) -> tuple[int, ...]:
        match planned.what:
            case "kill_all":
                return self.processes.kill_all(planned.target)
            case "kill_main":
                return self.processes.kill_main(planned.target)
            case _:
                return self.processes.kill_child(planned.target, planned.amount)

    def _on_link(self, planned: PlannedFault) -> float:
        what, _, server = planned.what.partition("_")
        link = self.links[planned.target, server]
        if what == "cut":
            self.network.submit(link.cut)
            return 0.0
        if what == "lose":
            self.network.submit(link.lose_answer)
            return 0.0
        self.network.submit(link.hole)
        return self._lasting(planned, LONGEST_LEASES, lambda: self.network.submit(link.heal))

    def _on_redis(self, planned: PlannedFault) -> float:
        with suppress(RedisError), Redis(port=self.redis.port, socket_timeout=1.0) as client:
            match planned.what:
                case "kill":
                    began_s = time.monotonic()
                    self.redis.kill()
                    self.redis = start_server(self.folder, port=self.redis.port)
                    return time.monotonic() - began_s
                case "freeze":
                    frozen = self.redis.pid
                    os.kill(frozen, signal.SIGSTOP)
                    return self._lasting(planned, LONGEST_LEASES_OF_REDIS, lambda: _thaw(frozen))
                case "outage":
                    frozen = self.redis.pid
                    os.kill(frozen, signal.SIGSTOP)
                    return self._lasting_for(OUTAGE_S, lambda: _thaw(frozen))
                case "stop_frozen":
                    return self._stop_while_redis_is_frozen()
                case "cut":
                    client.client_kill_filter(_type="normal", skipme=True)
                case "forget_scripts":
                    client.script_flush()
        return 0.0

    def _stop_while_redis_is_frozen(self) -> float:
        """Stops every part at once, without other faults until all have ended."""
        began_s = time.monotonic()
        os.kill(self.redis.pid, signal.SIGSTOP)
        try:
            within_s = dict.fromkeys(self.pollers, POLLER_STOPS_WITHIN_S)
            self.processes.stop_together(within_s, WORKER_STOPS_WITHIN_S)
        finally:
            _thaw(self.redis.pid)
        return time.monotonic() - began_s

    def _terminate(self, planned: PlannedFault) -> tuple[int, ...]:
        """Terminates one of the running updates, as Flower's button does."""
        asked: list[str] = []
        url = f"redis://127.0.0.1:{self.redis.port}/0"
        try:
            with Redis.from_url(url, socket_timeout=1.0) as client:
                leased: list[bytes] = client.zrange(keys.LEASES, 0, -1)
            running = [each for each in leased if each.count(b":") == 1]  # updates
            asked += [each.decode() for each in running[int(planned.amount * len(running)) :][:1]]
            if not asked:
                return ()
            with Celery("chaos", broker=url, set_as_current=False) as app:
                app.conf.broker_transport_options = _IN_A_SECOND
                app.control.revoke(asked, terminate=True)
        except (RedisError, OperationalError):
            pass  # the command may have arrived anyway
        return tuple(int(each.rpartition(":")[2]) for each in asked)

    def _on_telegram(self, planned: PlannedFault) -> None:
        match planned.what:
            case "flood":
                wait_s = 1 + round(planned.amount * LONGEST_FLOOD_S)
                self.telegram.fault(method="sendMessage", times=FAILED_CALLS, status=429, retry_after=wait_s)
            case "trouble":
                self.telegram.fault(times=FAILED_CALLS, status=502)
            case "lost_answers":
                self.telegram.fault(method="sendMessage", times=FAILED_CALLS, takes_effect=True, reset=True)

    def _on_broadcast(self, planned: PlannedFault) -> float:
        """In a thread, because a command takes seconds, and more while Redis is away."""
        steps = {
            "pause": (self.commands.pause, LONGEST_LEASES * self.lease_s),
            "kill_start": (self.commands.start_and_kill, LONGEST_STARTS * self.commands.takes_s),
        }
        step, longest_s = steps[planned.what]
        for_s = planned.amount * longest_s
        thread = threading.Thread(target=step, args=[for_s], name=planned.what)
        thread.start()
        self._ends.append(thread)
        return for_s

    def _lasting(self, planned: PlannedFault, longest_leases: float, end: Callable[[], None]) -> float:
        return self._lasting_for(planned.amount * longest_leases * self.lease_s, end)

    def _lasting_for(self, for_s: float, end: Callable[[], None]) -> float:
        timer = threading.Timer(for_s, end)
        timer.start()
        self._ends.append(timer)
        return for_s


def _thaw(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
