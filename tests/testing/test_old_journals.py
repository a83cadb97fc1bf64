"""Stored runs under the definitions of today: what would not continue as before is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from understudy import (
    Agent,
    Interrupted,
    Runtime,
    ScriptedModel,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.middleware import Middleware
from understudy.models.scripted_model import ScriptedRequest
from understudy.modes import Sequential
from understudy.testing import old_journals
from understudy.testing.stored_runs import Finding

did: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    did.clear()


def refund_tool(**options: Any) -> Any:
    @tool(**options)
    def refund(order: str) -> str:
        """Pay money back."""
        did.append(order)
        return "refunded"

    return refund


@tool
def note(text: str) -> str:
    """Note something."""
    did.append(text)
    return "noted"


def replies(request: ScriptedRequest) -> object:
    did.append("asked")
    if request.results:
        return "Done."
    return [call("refund", {"order": "17"}), call("note", {"text": "seen"})]


def desk(
    *,
    gated: Sequence[str] = ("refund",),
    tools: Sequence[Any] | None = None,
    model: Any = None,
    **options: Any,
) -> Agent:
    return Agent(
        "desk",
        model or ScriptedModel(replies),
        tools=[refund_tool(), note] if tools is None else list(tools),
        interrupt_on=dict.fromkeys(gated, True),
        **options,
    )


def stored(agent: Agent[Any, Any], folder: Path, *, deps: Any = None, answer: bool = False) -> Path:
    """The export of an agent that has got a message, and waits unless it is answered."""
    deps_for = None if deps is None else lambda _: deps
    with Runtime([agent], deps_for=deps_for) as runtime:
        ref = runtime.spawn(agent, id="ticket-42")
        outcome = ref.run("Refund order 17.").get(timeout=60)
        if answer:
            assert isinstance(outcome, Interrupted)
            ref.resume({each.id: approve() for each in outcome.requests}).get(timeout=60)
        data = runtime.export("ticket-42").get(timeout=60)
    path = folder / "ticket.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    did.clear()
    return path


def under(folder: Path, *agents: Agent[Any, Any], **options: Any) -> list[Finding]:
    [journal] = old_journals("*.json", root=folder)
    return journal.under(agents, **options)


def only(findings: list[Finding]) -> tuple[str, str, str]:
    [finding] = findings
    return finding.trouble, finding.tool_name, finding.reason


def test_a_run_under_the_same_definition_has_no_finding(tmp_path: Path) -> None:
    stored(desk(), tmp_path)
    [journal] = old_journals("*.json", root=tmp_path)
    assert journal.under([desk()]) == []
    journal.check([desk()])


def test_no_model_is_asked_and_no_body_is_entered(tmp_path: Path) -> None:
    stored(desk(), tmp_path)
    under(tmp_path, desk())
    under(tmp_path, desk(gated=()))
    assert did == []


def test_a_model_without_a_key_of_its_provider_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(desk(), tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert under(tmp_path, desk(model="openai:gpt-4o")) == []


@pytest.mark.parametrize("changed", ["version", "arguments"])
def test_an_approved_call_of_a_changed_tool_asks_again(tmp_path: Path, changed: str) -> None:
    stored(desk(), tmp_path)

    @tool
    def refund(order: str, reason: str = "none") -> str:
        """Pay money back."""
        return "refunded"

    now = refund if changed == "arguments" else refund_tool(version="2")
    trouble, name, reason = only(under(tmp_path, desk(tools=[now, note])))
    assert (trouble, name) == ("asks again", "refund")
    assert reason


def test_a_gate_of_today_asks_about_a_call_that_was_let_through(tmp_path: Path) -> None:
    stored(desk(), tmp_path)
    trouble, name, reason = only(under(tmp_path, desk(gated=["refund", "note"])))
    assert (trouble, name) == ("asks again", "note")
    assert "No gate asked about this call when it was made" in reason


def test_a_call_of_a_tool_that_is_gone_is_an_error_that_the_model_reads(tmp_path: Path) -> None:
    stored(desk(), tmp_path)
    findings = under(tmp_path, desk(gated=(), tools=[refund_tool()]))
    assert [(each.trouble, each.tool_name) for each in findings] == [("errs", "note")]
    assert "note" in findings[0].reason


def test_a_definition_that_is_gone_is_named(tmp_path: Path) -> None:
    stored(desk(), tmp_path)
    other = Agent("sales", ScriptedModel([]))
    assert only(under(tmp_path, other)) == (
        "does not load",
        "",
        "no definition has this name; there are: sales",
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: "{", "This is no JSON"),
        (lambda data: "[]", "This is not an exported agent"),
        (lambda data: json.dumps({**data, "format": "0" * 16}), "in another format"),
        (lambda data: json.dumps({**data, "records": [{"kind": "x"}]}), "damaged"),
    ],
)
def test_what_cannot_be_read_is_a_finding_with_the_reason(
    tmp_path: Path, spoil: Callable[[Any], str], said: str
) -> None:
    path = stored(desk(), tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(spoil(data), encoding="utf-8")
    trouble, _, reason = only(under(tmp_path, desk()))
    assert trouble == "does not load"
    assert said in reason


def test_a_run_that_had_deps_pauses_without_them(tmp_path: Path) -> None:
    stored(desk(), tmp_path, deps=object())
    assert only(under(tmp_path, desk())) == ("pauses", "", "needs deps")
    assert under(tmp_path, desk(), deps=object()) == []


def test_a_definition_that_leaves_older_runs_to_others_is_named(tmp_path: Path) -> None:
    stored(desk(), tmp_path)
    trouble, *_ = only(under(tmp_path, desk(version=2, on_version="wait")))
    assert trouble == "waits"


class Counted(BaseModel):
    counted: int = 0


class Count(Middleware):
    state_schema = Counted


class CountedByName(BaseModel):
    counted: dict[str, int] = {}


class CountByName(Middleware):
    state_schema = CountedByName


def test_values_that_do_not_fit_any_more_fail_the_next_message(tmp_path: Path) -> None:
    stored(desk(middleware=[Count()]), tmp_path, answer=True)
    assert under(tmp_path, desk(middleware=[Count()])) == []
    trouble, _, reason = only(under(tmp_path, desk(middleware=[CountByName()])))
    assert trouble == "fails"
    assert "do not fit" in reason


def test_a_workflow_of_other_agents_fails(tmp_path: Path) -> None:
    def flow(*names: str) -> Agent[Any, Any]:
        return Agent("flow", mode=Sequential([desk_named(name) for name in names]))

    def desk_named(name: str) -> Agent[Any, Any]:
        return Agent(
            name, ScriptedModel(replies), tools=[refund_tool(), note], interrupt_on={"refund": True}
        )

    stored(flow("one", "two"), tmp_path)
    assert under(tmp_path, flow("one", "two")) == []
    trouble, _, reason = only(under(tmp_path, flow("one", "three")))
    assert trouble == "fails"
    assert "three" in reason


def test_a_check_names_file_run_call_and_reason(tmp_path: Path) -> None:
    stored(desk(), tmp_path)
    [journal] = old_journals("*.json", root=tmp_path)
    now = [desk(gated=["refund", "note"])]
    with pytest.raises(AssertionError) as caught:
        journal.check(now)
    text = str(caught.value)
    assert text.startswith("ticket.json: 'ticket-42' (desk), run ")
    assert "call of 'note' (" in text
    assert " asks again: No gate asked" in text
    journal.check(now, allowed=["asks again"])


def test_a_pattern_of_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file is"):
        old_journals("*.json", root=tmp_path)


def test_a_journal_is_named_by_its_file(tmp_path: Path) -> None:
    path = stored(desk(), tmp_path)
    [journal] = old_journals("*.json", root=tmp_path)
    assert (str(journal), repr(journal)) == ("ticket.json", f"OldJournal({str(path)!r})")


async def test_a_journal_is_judged_where_a_loop_runs(tmp_path: Path) -> None:
    await asyncio.to_thread(stored, desk(), tmp_path)
    assert under(tmp_path, desk()) == []
