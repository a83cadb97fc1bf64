"""What a scenario has recorded, as an export: to be replayed."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cut_off import Disk
from tests.support.scenarios import Scenario, live, make_agent
from understudy.state.record_format import FORMAT_VERSION, record_format

__all__ = ["calls_with_results", "export_of"]


def export_of(scenario: Scenario) -> dict[str, Any]:
    """The export of an agent that has lived through a scenario."""
    disk = Disk()
    live(scenario, disk, [])
    return {
        "export_version": FORMAT_VERSION,
        "incarnation": 1,
        "format": record_format(),
        "agent_id": "scenario",
        "agent": make_agent(scenario, []).name,
        "records": [json.loads(line) for line in disk.lines],
    }


def calls_with_results(export: dict[str, Any]) -> set[str]:
    """The keys of the calls that have a result, also of agents inside."""
    found: set[str] = set()
    for record in export["records"]:
        inner = record
        while inner["kind"] == "child_record":
            inner = inner["record"]
        if inner["kind"] == "result":
            found.add(inner["call_key"])
    return found
