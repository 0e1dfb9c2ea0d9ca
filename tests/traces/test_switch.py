"""Traces are off unless OpenTelemetry's own variables configure an exporter."""

from __future__ import annotations

import pytest

from chatlanes.traces import are_wanted
from chatlanes.traces.otel import protocol
from chatlanes.traces.spans import exporters
from tests.tasks.test_celery_app import says

pytestmark = pytest.mark.slow

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": " ", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_TRACES_EXPORTER": "none", **ENDPOINT}, False),
        ({"OTEL_SDK_DISABLED": "True", **ENDPOINT}, False),
        ({"OTEL_SDK_DISABLED": "false", **ENDPOINT}, True),
    ],
)
def test_switch(env: dict[str, str], wanted: bool) -> None:
    assert are_wanted(env) is wanted


def test_protocol_and_exporters() -> None:
    assert exporters({"OTEL_TRACES_EXPORTER": "otlp, console,none"}) == ["otlp", "console"]
    assert protocol({}) == "http/protobuf"
    assert protocol({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) == "grpc"
    by_traces = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert protocol(by_traces) == "grpc"


START = """
import sys
from chatlanes.settings import load
from chatlanes import traces
import chatlanes.poller.__main__, chatlanes.poller.webhook.command, chatlanes.tasks.update
import logging; logging.basicConfig(format="%(message)s", stream=sys.stdout)
traces.start("worker", load())
# redis-py imports OpenTelemetry's metrics where they are installed
traced = {"chatlanes.traces.otel", "opentelemetry.sdk.trace", "opentelemetry.exporter"} & set(sys.modules)
print(f"imported {traced}" if traced else "not imported")
"""


@pytest.mark.parametrize(
    ("env", "output"),
    [
        ({}, "not imported"),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, "not imported"),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon"},
            "no traces: OTEL_EXPORTER_OTLP_PROTOCOL=carrier/pigeon: no such exporter is installed",
        ),
    ],
)
def test_off_imports_nothing_and_errors_are_one_sentence(tmp_path, env: dict[str, str], output: str) -> None:
    assert says(tmp_path, START, BOT_TOKEN="1:TEST", **env).startswith(output)


def test_dotenv_switches_traces_on(tmp_path) -> None:
    (tmp_path / ".env").write_text("OTEL_TRACES_EXPORTER=console\n")
    without = 'import sys; sys.modules["opentelemetry.sdk"] = None\n'
    said = says(tmp_path, without + START, BOT_TOKEN="1:TEST")
    assert said.startswith("no traces: OTEL_… is set, but opentelemetry.sdk")
    assert "pip install 'chatlanes[opentelemetry]'" in said
