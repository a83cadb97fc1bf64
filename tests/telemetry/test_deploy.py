"""The dashboard and the alerts in `deploy/telemetry` name metrics and labels that there are.

Rules: O5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from understudy.telemetry import conventions

FOLDER = Path(__file__).parents[2] / "deploy" / "telemetry"
PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((FOLDER / "prometheus-alerts.yaml").read_text(encoding="utf-8"))
NAME = re.compile(r"\b(?:understudy|gen_ai|operation|error)_[a-z_]+\b")
LABELS = {
    value.replace(".", "_")
    for name, value in vars(conventions).items()
    if name.isupper() and isinstance(value, str)
} | {"gen_ai_token_type"}


def series() -> set[str]:
    """All time series that Prometheus has of the metrics."""
    found = set[str]()
    for metric in conventions.METRICS:
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {metric.prometheus + part for part in parts}
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_what_is_asked_of_prometheus_is_measured(title: str, expression: str) -> None:
    named = set(NAME.findall(expression))

    assert named & series(), title
    assert named <= series() | LABELS, title


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_what_each_host_tells_of_the_whole_store_is_not_summed(title: str, expression: str) -> None:
    of_store = {
        metric.prometheus
        for metric in conventions.METRICS
        if metric.kind == "gauge" and metric is not conventions.COMMIT_QUEUE
    }
    for name in of_store & set(NAME.findall(expression)):
        assert re.search(rf"max(?: by \([a-z_, ]+\) )?\(+{name}\b", expression), title


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    asked = {name for _, expression in expressions() for name in NAME.findall(expression)}
    unseen = {
        metric.name
        for metric in conventions.METRICS
        if not any(name.startswith(metric.prometheus) for name in asked)
    }

    assert unseen == {conventions.REQUESTS.name}  # of which the waits are there


def test_there_are_alerts_for_what_needs_a_person() -> None:
    asked = " ".join(rule["expr"] for rule in rules())

    for metric in ("OLDEST_REQUEST", "OPEN_DOUBTS", "QUARANTINED", "OVERDUE", "BUDGET_USED"):
        assert getattr(conventions, metric).prometheus in asked
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_panels_have_ids_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]

    assert len({panel["id"] for panel in panels}) == len(set(places)) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_the_page_lists_every_metric() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| (\w+) \|", page, re.MULTILINE)

    assert rows == [(metric.name, metric.kind) for metric in conventions.METRICS]
