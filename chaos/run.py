"""One chaos run: starts everything, sends updates and faults for a time, waits until all updates are done, and saves
the evidence.

Everything that was started is ended, even after an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import requests
from redis import Redis

from celery_lanes.embedded_server import free_port, start_server
from chaos.evidence.aof import AofCopy
from chaos.evidence.findings import AOF_COPY, HISTORY, MONITOR, Findings
from chaos.evidence.samples import Samples
from chaos.faults import drills
from chaos.faults.inject import FaultInjector
from chaos.faults.plan import faults
from chaos.faults.proxy import HOST, Link, Network
from chaos.systems import bot, broadcast, orders, recording, schedules, timers
from chaos.systems.broadcast import BroadcastCommands
from chaos.systems.definitions import System
from chaos.systems.feed import Feed
from chaos.systems.operator import Operator
from chaos.systems.processes import Processes
from chaos.systems.users import Conversation, Users
from chatlanes.bot.calls.questions import ASKED
from chatlanes.settings import secret_from
from chatlanes_sandbox import simulator
from chatlanes_sandbox.simulator import Simulator
from spec.conformance.monitor import Recorder

Links = dict[tuple[str, str], Link]

LEASE_S = 3.0
RESTART_EVERY_S = 0.1
#: Conversations with agents, for each of the other updates.
AGENTS = 0.1
#: When the operator begins, as a part of the time of a run.
OPERATOR_AFTER = 0.2


@dataclass
class Chaos:
    """Everything that runs, with its own folder."""

    system: System
    folder: Path
    telegram: Simulator
    network: Network
    processes: Processes
    injector: FaultInjector
    aof_copy: AofCopy
    recorder: Recorder
    samples: Samples
    buried: list[int] | None = None
    sessions: dict[str, int] | None = None
    drills: list[str] = field(default_factory=list)
    broadcasts: dict[str, dict[str, Any]] = field(default_factory=dict)
    last_fired: dict[str, int] = field(default_factory=dict)
    calm_at_s: float = 0.0
    conversations: list[Conversation] = field(default_factory=list)
    open_questions: list[str] = field(default_factory=list)
    malformed: list[int] = field(default_factory=list)

    def run(self, seconds: float, seed: int, rate: float, every_s: float) -> None:
        """Runs for `seconds`, then until all updates are done or none has finished for `give_up_after_s`."""
        for name in self.system.parts:
            self.processes.start(name)
        feed = Feed(self.telegram, seed, rate, self.system.repeats)
        if self.system.recipients:
            self.injector.commands.start(self.system.recipients)
        feed.start()
        can_steer = self.system.settings.get("INTERRUPT") == "steer"
        users = Users(self.telegram, seed, rate * AGENTS if self.system.has_agents else 0.0, can_steer=can_steer)
        users.start()
        operator = self._operator(seconds)
        ends_s = time.monotonic() + seconds
        for planned in faults(seed, self.system, every_s):
            if not self._restart_ended_for(planned.pause_s, ends_s):
                break
            fault = self.injector.inject(planned)
            print(f"{len(self.injector.faults):5}  {fault.what:15} {fault.target}", flush=True)  # noqa: T201
        feed.end()
        users.end_new()
        self.injector.end()
        for shop in [*self.system.publishers][:1]:
            self.processes.end_part(shop)  # the relay publishes what it leaves
        self._wait_until_calm()
        if operator:
            operator.end()
            self.malformed = operator.malformed
            self.drills += [f"the operator gave up: {operator.unfinished}"] if operator.unfinished else []
        users.end()  # none has a question any more, but some may have just pressed an old button
        self._wait_until_calm()
        self.conversations = users.conversations
        self.recorder.end()
        with Redis(port=self.injector.redis.port) as client:
            self._read_final_state(client)
            if self.system.has_drills:
                self._drill(client)
        self.processes.stop_everything()
        self.samples.end()

    def _operator(self, seconds: float) -> Operator | None:
        """Started, if the system has dead letters."""
        if self.system.buried is None:
            return None
        environment, port = dict(self.injector.commands.environment), self.injector.redis.port
        operator = Operator(environment, self.folder, port, self.telegram, seconds * OPERATOR_AFTER)
        operator.start()
        return operator

    def save(self, seed: int) -> None:
        """Saves the findings in the folder. Call after `run`."""
        self.aof_copy.end()
        Findings(
            seed=seed,
            sent=self.telegram.stats()["added"],
            faults=[asdict(fault) for fault in self.injector.faults],
            calls=self.samples.calls,
            buried=self.buried,
            sessions=self.sessions,
            lease_s=self.system.lease_s,
            hung=self.processes.hung,
            parts=self.processes.started,
            backlog=self.samples.backlog,
            drills=self.drills,
            timers_each=int(self.system.settings.get(timers.EACH, 0)),
            last_fired=self.last_fired,
            calm_at_s=self.calm_at_s,
            broadcasts=self.broadcasts,
            promised=self.injector.commands.promised,
            main_broadcast=self.injector.commands.main,
            conversations=[asdict(each) for each in self.conversations],
            open_questions=self.open_questions,
            malformed=self.malformed,
            orders=orders.committed(self.folder),
        ).save(self.folder)

    def _read_final_state(self, client: Redis) -> None:
        """Must run before a drill empties the database."""
        self.calm_at_s = time.time()
        self.buried = sorted(self.system.buried(client)) if self.system.buried else None
        self.sessions = self.system.sessions(client) if self.system.sessions else None
        self.open_questions = [key.decode() for key in client.scan_iter(f"{ASKED}*", count=1000)]
        if self.system.has_timers:
            self.last_fired, self.broadcasts = schedules.last_fired(client), broadcast.results(client)

    def _drill(self, client: Redis) -> None:
        self.drills += drills.two_deployments(self.system, self.processes, self.folder)
        self.drills += drills.empty_replica(self.system, self.processes, self.folder, client)
        print(f"       drills: {'; '.join(self.drills) or 'as expected'}", flush=True)  # noqa: T201

    def _restart_ended_for(self, seconds: float, at_most_until_s: float) -> bool:
        """False if `at_most_until_s` has passed."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            if time.monotonic() > at_most_until_s:
                return False
            self.processes.restart_ended()
            time.sleep(RESTART_EVERY_S)
        return True

    def _wait_until_calm(self) -> None:
        smallest, ends_s = None, time.monotonic() + self.system.give_up_after_s
        while (waiting := self.samples.waiting()) != 0 and self._restart_ended_for(2 * RESTART_EVERY_S, ends_s):
            if waiting is not None and (smallest is None or waiting < smallest):
                smallest, ends_s = waiting, time.monotonic() + self.system.give_up_after_s


@contextmanager
def chaos(system: System, folder: Path) -> Iterator[Chaos]:
    """Starts Redis, the simulator and the network; the parts are not started yet."""
    with ExitStack() as ends:
        redis = start_server(folder / "redis")
        ends.callback(redis.stop)
        telegram = ends.enter_context(simulator.start("1:CHAOS"))
        network = Network()
        ends.callback(network.end)
        ports = {part: free_port() for part in system.pollers} if system.receives else {}
        links = _links(system, network, redis.port, int(telegram.url.rpartition(":")[2]), ports)
        environments = {part: _environment(system, folder, telegram, links, part, ports) for part in system.parts}
        if system.receives:
            _set_webhook(telegram, network, [links[part, "telegram"].port for part in ports])
        processes = Processes(system.parts, environments, folder)
        ends.callback(processes.end)
        commands = BroadcastCommands(_of_commands(system, telegram, redis.port), folder)
        injector = FaultInjector(
            processes, network, links, folder / "redis", redis, telegram, LEASE_S, commands, tuple(system.pollers)
        )
        ends.callback(lambda: injector.redis.stop())  # looked up late: the server may have been replaced
        aof_copy = AofCopy(folder / "redis", folder / AOF_COPY)
        recorder = Recorder(redis.port, folder / MONITOR)
        samples = Samples(telegram, redis.port, lambda client: system.pending(client) + orders.unpublished(folder))
        aof_copy.start()
        recorder.start()
        samples.start()
        yield Chaos(system, folder, telegram, network, processes, injector, aof_copy, recorder, samples)


def _of_commands(system: System, telegram: Simulator, redis_port: int) -> dict[str, str]:
    """The environment of commands. They have no link of their own: they are killed, not cut off."""
    redis = f"redis://{HOST}:{redis_port}/0"
    return {**os.environ, "BOT_TOKEN": telegram.token, "REDIS_URL": redis, "ORDER_BY": system.order_by}


def _links(system: System, network: Network, redis_port: int, telegram_port: int, ports: Mapping[str, int]) -> Links:
    """The links of each part. Telegram connects to a receiver, which listens on one of the `ports`."""
    redis = {(part, "redis"): network.link(redis_port, arrives_late=True) for part in system.parts}
    telegram = {
        (part, "telegram"): network.link(ports.get(part, telegram_port), arrives_late=False) for part in system.parts
    }
    return redis | telegram


def _set_webhook(telegram: Simulator, network: Network, ports: Sequence[int]) -> None:
    """Sends updates to the receivers in turn, like a proxy in front of them."""
    front = network.link(*ports, arrives_late=False)
    hook = {"url": f"http://{HOST}:{front.port}/hook", "secret_token": secret_from(telegram.token)}
    requests.post(f"{telegram.url}/bot{telegram.token}/setWebhook", json=hook, timeout=30).raise_for_status()


def _environment(
    system: System, folder: Path, telegram: Simulator, links: Links, part: str, ports: Mapping[str, int]
) -> dict[str, str]:
    listening = {"WEBHOOK_PORT": str(ports[part]), "WEBHOOK_URL": "https://bot.example/hook"} if part in ports else {}
    return {
        **os.environ,
        **listening,
        "BOT_TOKEN": telegram.token,
        "BOT_API_URL": f"http://{HOST}:{links[part, 'telegram'].port}",
        "BOT": "chaos.systems.bot:bot",
        "REDIS_URL": f"redis://{HOST}:{links[part, 'redis'].port}/0",
        "ORDER_BY": system.order_by,
        "LEASE_SECONDS": str(LEASE_S),
        "RETRY_BACKOFF": "0.2",
        recording.HISTORY: str(folder / HISTORY),
        orders.DATABASE: str(folder / orders.FILE),
        bot.SLOWEST_S: str(system.slowest_s),
        **system.settings,
    }
