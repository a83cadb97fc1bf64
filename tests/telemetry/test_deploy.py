"""The dashboard and the alerts in `deploy/telemetry` name metrics and labels that there are.

Rules: O5.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from tests.support.agents import completed, interrupted
from tests.support.loops import soon
from tests.support.otel import Told
from tests.support.web_site import HOST, logged_in
from understudy import Agent, Runtime, ScriptedModel, approve, call, tool
from understudy.telemetry import conventions
from understudy.tools import OutcomeUnknown
from understudy.web import ui

FOLDER = Path(__file__).parents[2] / "deploy" / "telemetry"
PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((FOLDER / "prometheus-alerts.yaml").read_text(encoding="utf-8"))
NAME = re.compile(r"\b(?:understudy|gen_ai|operation|error)_[a-z_]+\b")
SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}")
LINK = re.compile(r"\$\{inbox:raw\}(/[\w/]*)(?:\?([\w&=${}.:-]*))?")
OF_STORE = frozenset({"understudy_host"})
BY_AGENT = frozenset({"gen_ai_agent_name"})
BY_TOOL = frozenset({"gen_ai_tool_name"})
OF_BUDGET = frozenset({"understudy_budget", "understudy_budget_key", "understudy_budget_unit"})
MODEL = frozenset({"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"})
OF_REPLY = MODEL | {"gen_ai_token_type", "gen_ai_response_model", "gen_ai_system"}
OUTCOME = frozenset({"understudy_outcome"})
ERROR = frozenset({"error_type"})
KIND = frozenset({"understudy_request_kind"})
DOUBT = frozenset({"understudy_doubt"})
DECISION = frozenset({"understudy_decision", "understudy_decision_origin"})
LABELS_OF: dict[conventions.Metric, frozenset[str]] = {
    conventions.TOKENS: OF_REPLY,
    conventions.ESTIMATED_COST: OF_REPLY,
    conventions.COST: BY_AGENT | {"gen_ai_request_model"},
    conventions.MODEL_DURATION: MODEL | ERROR,
    conventions.TOOL_DURATION: BY_AGENT | BY_TOOL | ERROR,
    conventions.ATTEMPT_DURATION: BY_AGENT | OUTCOME,
    conventions.RUN_DURATION: BY_AGENT | OUTCOME,
    conventions.REQUESTS: BY_AGENT | BY_TOOL | KIND,
    conventions.REQUEST_WAIT: BY_TOOL | KIND | DECISION,
    conventions.DOUBTS: BY_AGENT | BY_TOOL | DOUBT,
    conventions.SETTLED: BY_AGENT,
    conventions.DOUBTS_ENDED: BY_AGENT,
    conventions.QUARANTINES: BY_AGENT,
    conventions.RESTARTS: BY_AGENT,
    conventions.TAKEOVERS: BY_AGENT,
    conventions.FENCES: BY_AGENT,
    conventions.COMMIT_DURATION: ERROR,
    conventions.COMMIT_QUEUE: OF_STORE,
    conventions.AGENTS: OF_STORE | {"understudy_status"},
    conventions.OPEN_REQUESTS: OF_STORE | KIND,
    conventions.OLDEST_REQUEST: OF_STORE,
    conventions.OPEN_DOUBTS: OF_STORE | DOUBT,
    conventions.QUARANTINED: OF_STORE,
    conventions.OVERDUE: OF_STORE,
    conventions.BUDGET_USED: OF_STORE | OF_BUDGET,
    conventions.BUDGET_LIMIT: OF_STORE | OF_BUDGET,
    conventions.BUDGET_REFUSALS: frozenset({"understudy_budget"}),
}
"""The labels of each metric. `instance` and `job` are Prometheus' own."""
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
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def links() -> Iterator[str]:
    """All links of the dashboard, of its panels, and of the series in these."""
    yield from (link["url"] for link in DASHBOARD["links"])
    for panel in panels():
        yield from (link["url"] for link in panel.get("links", ()))
        yield from (link["url"] for link in panel["fieldConfig"]["defaults"].get("links", ()))


def metric_of(series_name: str) -> conventions.Metric:
    (found,) = (
        metric
        for metric in conventions.METRICS
        if series_name.removeprefix(metric.prometheus) in ("", "_bucket", "_sum", "_count")
    )
    return found


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

    assert unseen == set()


def test_there_are_alerts_for_what_needs_a_person() -> None:
    asked = " ".join(rule["expr"] for rule in rules())

    for metric in ("OLDEST_REQUEST", "OPEN_DOUBTS", "QUARANTINED", "OVERDUE", "BUDGET_USED"):
        assert getattr(conventions, metric).prometheus in asked
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_panels_have_ids_and_places_of_their_own() -> None:
    found = DASHBOARD["panels"]
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in found)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len({panel["id"] for panel in found}) == len(found)
    assert len(set(cells)) == len(cells), "panels lie upon each other"
    assert max(x for x, _ in cells) < 24


def test_the_panels_are_in_rows_and_each_says_what_it_shows() -> None:
    first, *_ = DASHBOARD["panels"]
    assert first["type"] == "row"
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert len(rows) == len(set(rows)) >= 5
    for panel in panels():
        description = panel["description"]
        assert description.endswith("."), panel["title"]
        assert len(description.split()) >= 4, panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), f"{panel['title']} has two queries of one name"


def test_each_variable_is_used_and_each_that_is_used_is_there() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    body = json.dumps({**DASHBOARD, "templating": {}})
    used = set(re.findall(r"\$\{?([a-z]+)\b", body))

    assert used == variables.keys() == {"datasource", "definition", "tool", "instance", "inbox"}
    for name in ("definition", "tool", "instance"):
        variable = variables[name]
        assert variable["multi"]
        assert variable["allValue"] == ".*"  # also series without the label
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert asked is not None
        assert asked[1] in series()
        assert asked[2] in LABELS_OF[metric_of(asked[1])] | {"instance"}
    assert variables["inbox"]["type"] == "textbox"


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_a_metric_is_asked_only_for_labels_that_it_has(title: str, expression: str) -> None:
    named = [metric_of(name) for name in set(NAME.findall(expression)) & series()]
    for name, selector in SELECTOR.findall(expression):
        filtered = set(re.findall(r"(\w+)(?:=~|!=|!~|=)", selector))
        assert filtered <= LABELS_OF[metric_of(name)] | {"instance"}, title
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        by = {label.strip() for label in group.split(",")} - {"le"}
        assert all(by <= LABELS_OF[metric] for metric in named), title


def test_each_query_of_the_dashboard_is_of_the_chosen_hosts() -> None:
    for panel in panels():
        for target in panel["targets"]:
            for name in set(NAME.findall(target["expr"])) & series():
                assert f'{name}{{instance=~"$instance"' in target["expr"], panel["title"]
                labels = LABELS_OF[metric_of(name)]
                for label, variable in (("agent_name", "definition"), ("tool_name", "tool")):
                    if f"gen_ai_{label}" in labels:
                        chosen = f'gen_ai_{label}=~"${variable}"'
                        assert chosen in target["expr"], panel["title"]


async def test_the_metrics_of_a_story_have_the_labels_that_are_listed() -> None:
    told = Told()

    @tool(ask=True)
    def pay(order: str) -> str:
        """Pay it."""
        return "paid"

    @tool
    async def courier(order: str) -> str:
        """Send a courier."""
        raise OutcomeUnknown("no answer")

    @tool
    def look_up(order: str) -> str:
        """Look it up."""
        raise ValueError("no such order")

    order = {"order": "17"}
    turns = [call(name, order) for name in ("pay", "courier", "look_up")]
    async with Runtime(
        [Agent("desk", ScriptedModel([*turns, "Done."]), tools=[pay, courier, look_up])],
        telemetry=told.telemetry,
    ) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        completed(await soon(ref.resume(asked.decide(approve()))))
        found = {
            metric: {
                label.replace(".", "_")
                for point in await asyncio.to_thread(told.metrics, metric.name)
                for label in point.attributes
            }
            for metric in conventions.METRICS
        }
    seen = {metric.name for metric, labels in found.items() if labels}
    assert len(seen) >= 12, seen
    wrong = {metric.name: labels for metric, labels in found.items() if labels - LABELS_OF[metric]}
    assert wrong == {}


@pytest.mark.slow
def test_each_link_leads_to_a_page_and_its_filter_works_there() -> None:
    found = list(links())
    assert len(found) > 15
    fits = {"tool": "pay", "agent": "desk", "kind": "approval", "status": "interrupted"}
    others = {"tool": "x", "agent": "x", "kind": "halt", "status": "failed"}

    @tool(ask=True)
    def pay(order: str) -> str:
        """Pay it."""
        return "paid"

    desk = Agent("desk", ScriptedModel([call("pay", {"order": "17"})]), tools=[pay])
    with Runtime([desk]) as runtime:
        interrupted(runtime.spawn("desk", id="ticket-17").run("Pay it.").get(timeout=60))
        client = TestClient(ui(runtime, auth=logged_in("ann")), base_url=HOST)
        for url in found:
            link = LINK.fullmatch(url)
            assert link is not None, url
            asked = dict(pair.split("=") for pair in (link[2] or "").split("&") if pair)
            pages = {
                given["tool"]: client.get(
                    link[1], params={name: given.get(name, value) for name, value in asked.items()}
                )
                for given in (fits, others)
            }
            assert {page.status_code for page in pages.values()} == {200}, url
            if fits.keys() & asked.keys() and link[1] != "/doubts":
                assert "ticket-17" in pages["pay"].text, url
                assert "ticket-17" not in pages["x"].text, url


def test_the_page_lists_every_metric() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^- `([\w.]+)`, (\w+): ", page, re.MULTILINE)

    assert rows == [(metric.name, metric.kind) for metric in conventions.METRICS]
