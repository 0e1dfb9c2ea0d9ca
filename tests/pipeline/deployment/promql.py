"""A minimal PromQL parser, to compare the metrics in our alerts and dashboards with the served ones.

It knows only the functions that our expressions use, and takes every other word for a metric.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from tests.support import ROOT

DEPLOY = ROOT / "docs/deploy"
_WORDS = {"sum", "max", "by", "rate", "increase", "changes", "histogram_quantile", "absent", "label_values"}


def expressions() -> list[str]:
    """The expressions of every alert, and of every panel and variable of the dashboards."""
    rules = YAML(typ="safe", pure=True).load(DEPLOY / "alerts.yml")["groups"]
    found = [rule["expr"] for group in rules for rule in group["rules"]]
    for file in sorted(DEPLOY.glob("grafana/dashboards/*.json")):
        dashboard = json.loads(file.read_text())
        found += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
        found += [variable["query"]["query"] for variable in dashboard["templating"]["list"]]
    return found


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """(metric, labels) of each selector. Labels in `by (…)` and label_values count for every selector."""
    plain = re.sub(r"\[[^\]]*\]", "", expression)
    grouped = {label for by in re.findall(r"\bby \(([^)]*)\)", plain) for label in re.split(r", *", by)}
    grouped |= set(re.findall(r"^label_values\(\w+, (\w+)\)", plain))
    rest = re.sub(r"\bby \([^)]*\)|(?<=label_values\()(\w+), \w+", r"\1", plain)
    for name, labels in re.findall(r"\b([a-z_]\w*)(?:\{([^}]*)\})?", re.sub(r'"[^"]*"', '""', rest)):
        if name not in _WORDS:
            yield name, grouped | set(re.findall(r"(\w+)=~?", labels))


def served(text: str) -> Mapping[str, set[str]]:
    """Each metric as it can be queried -> its labels. The set is empty for a metric without samples."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        endings = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        found |= {f"{name}{ending}": set() for ending in endings}
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def values(text: str) -> dict[tuple[str, Any], float]:
    """(metric, value of its only label or None) -> value, for metrics with at most one label."""
    return {
        (sample.name, next(iter(sample.labels.values()), None)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if len(sample.labels) < 2
    }
