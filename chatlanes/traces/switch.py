"""Reads from OpenTelemetry's variables whether traces are enabled. Pure; does not import OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Mapping

PREFIX = "OTEL_"
_SAY_WHERE = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def are_wanted(env: Mapping[str, str]) -> bool:
    """True if a destination is set; OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none switch them off."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return bool(exporters(env)) and any(env.get(name, "").strip() for name in _SAY_WHERE)


def exporters(env: Mapping[str, str]) -> list[str]:
    """The names in OTEL_TRACES_EXPORTER, `otlp` when it is not set; none for `none`."""
    names = env.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return [name for each in names.split(",") if (name := each.strip()) and name != "none"]


def protocol(env: Mapping[str, str]) -> str:
    """The protocol of `otlp`."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if env.get(name, "").strip():
            return env[name].strip()
    return "http/protobuf"


def are_set_up() -> bool:
    """True if the program, or its bot, has set up traces itself."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)
