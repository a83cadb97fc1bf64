"""Each verb of the table can be called by each way, or the table says why not."""

from __future__ import annotations

import inspect
import json
import re
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from typer.main import get_command

from tests.support.sources import ROOT
from understudy import AgentRef, DecisionError, Runtime, StopSignal, approve
from understudy.actors import Schedules
from understudy.actors.agent import messages as m
from understudy.actors.agent.planner import PlanChange
from understudy.actors.hosts.wire import body_of, message_of, reply_to, value_of_reply
from understudy.actors.verbs import ROWS, VERB_OF, VERBS, Verb, Way, arguments_of
from understudy.cli.app import app
from understudy.cluster import Cluster, ClusterRef, ClusterSchedules
from understudy.interrupts import Decision
from understudy.mcp.agents_server import TOOLS
from understudy.models.messages import user_message
from understudy.run.waits.answers import resolved
from understudy.state.files import FileChange, StoredFile
from understudy.state.plans import Occurrence, RunChoices, Schedule
from understudy.state.records import FilesChanged, MessageQueued, ReviewClosed, Revoked, Settled
from understudy.web.api import AGENT, ENDPOINTS

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
FILE = StoredFile(hash="a" * 64, size=3)
SCHEDULE = Schedule(
    id="daily",
    name="Daily",
    cron="0 9 * * *",
    timezone="UTC",
    message=user_message("go", at=NOW),
    missed="one",
    overlap="skip",
    created_at=NOW,
    next_due=NOW,
    context={"tenant": "a"},
)
API = {
    "run": ("POST", f"{AGENT}/messages"),
    "send": ("POST", f"{AGENT}/messages"),
    "decide": ("POST", f"{AGENT}/decisions"),
    "delete": ("DELETE", AGENT),
    "import_": ("POST", "/import"),
    "recover": ("POST", "/recover"),
    "agents": ("GET", "/agents"),
    "pending": ("GET", "/pending"),
    "count_pending": ("GET", "/pending"),
    "doubts": ("GET", "/doubts"),
    "reviews": ("GET", "/reviews"),
    "decided": ("GET", "/decisions"),
    "attention": ("GET", "/attention"),
    "usage": ("GET", "/usage"),
    "search": ("GET", "/search"),
    "delegate": ("POST", "/delegations"),
    "delegations": ("GET", "/delegations"),
    "end_delegation": ("POST", "/delegations/end"),
    "administration": ("GET", "/administration"),
    "budgets": ("GET", "/budgets"),
    "raise_budget": ("POST", "/budgets/raise"),
    "notices": ("GET", "/notifications"),
    "retry_notice": ("POST", "/notifications/retry"),
    "vote": ("POST", "/administration/vote"),
    "freeze": ("POST", "/freezes"),
    "thaw": ("POST", "/freezes/thaw"),
    "freezes": ("GET", "/freezes"),
    **{
        name: ("POST", f"{AGENT}/requests/{{request_id}}/{name}")
        for name in ("take", "comment", "snooze", "assign")
    },
    "notes": ("GET", f"{AGENT}/requests/{{request_id}}/notes"),
    "require": ("POST", "/requirements"),
    "required": ("GET", "/requirements"),
    "count": ("GET", ""),
    "now": ("GET", ""),
    "info": ("GET", AGENT),
    "display": ("GET", f"{AGENT}/conversation"),
    "display_events": ("GET", f"{AGENT}/conversation/events"),
    "load_blobs": ("GET", f"{AGENT}/file"),
    "schedules.list": ("GET", f"{AGENT}/schedules"),
    **{
        f"schedules.{name}": ("POST", f"{AGENT}/schedules")
        for name in ("pause", "resume", "trigger", "remove")
    },
    **{
        name: ("GET", f"{AGENT}/{name}")
        for name in ("state", "decisions", "history", "events", "outcome", "export")
    },
    **{verb.name: ("POST", f"{AGENT}/{verb.name}") for verb in VERBS.values() if verb.plain},
}
"""The call of the API by the verb that it makes."""
CLI = {
    "decide": "approve",
    "agents": "ls",
    "decided": "decisions",
    "info": "show",
    "state": "show",
    "display": "show",
    "display_events": "run",
    "import_": "import",
    **{name: "schedules" for name in VERBS if name.startswith("schedules.")},
    **dict.fromkeys(("require", "required"), "trust"),
    **dict.fromkeys(("notices", "retry_notice"), "notify"),
    "schedules.set": "(none)",
    "notify": "(none)",  # the command `notify` is about what people are told
    "reject": "(none)",  # the command `reject` decides: it answers no token
}
"""The command by the verb that it calls, where the names differ."""
by_name = pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)


def owner_of(verb: Verb, *classes: type[Any]) -> type[Any] | None:
    """Which of these classes has its method."""
    return next((each for each in classes if hasattr(each, verb.method)), None)


def classes_of(verb: Verb) -> list[tuple[type[Any], type[Any]]]:
    """The classes here and of a cluster whose instances may have its method."""
    if verb.name.startswith("schedules."):
        return [(Schedules, ClusterSchedules)]
    return [(AgentRef, ClusterRef), (Runtime, Cluster)]


@by_name
def test_a_verb_is_a_method_of_a_ref_or_of_the_runtime(verb: Verb) -> None:
    owner = owner_of(verb, *(here for here, _ in classes_of(verb)))
    assert owner is not None
    returns = str(inspect.signature(getattr(owner, verb.method)).return_annotation)
    assert verb.is_list is returns.startswith("Listing[")
    assert verb.lacks.keys() <= set(get_args(Way))
    assert all(verb.lacks.values()), "each with a reason"


@by_name
def test_a_verb_is_a_row_or_says_why_not(verb: Verb) -> None:
    assert (verb.message is None) is ("row" in verb.lacks)
    if verb.message is not None:
        same = ROWS[verb.row_kind]
        assert same.message is verb.message
        # The row knows no more of its verb than its kind says.
        assert (same.of_run, same.is_long, same.result) == (verb.of_run, verb.is_long, verb.result)


def test_an_agent_handles_the_message_of_each_verb() -> None:
    assert VERB_OF.keys() <= m.HANDLERS.keys()


@by_name
def test_a_verb_is_a_call_of_a_cluster_or_says_why_not(verb: Verb) -> None:
    owned = [(here, there) for here, there in classes_of(verb) if hasattr(here, verb.method)]
    own = any(
        getattr(there, verb.method) is not getattr(here, verb.method) for here, there in owned
    )
    assert own is ("cluster" not in verb.lacks)


@by_name
def test_a_verb_is_a_call_of_the_api_or_says_why_not(verb: Verb) -> None:
    assert (verb.name in API) is ("api" not in verb.lacks)
    if verb.name in API:
        (endpoint,) = [each for each in ENDPOINTS if (each.method, each.path) == API[verb.name]]
        assert endpoint.right == verb.right
        if verb.plain:
            assert endpoint.body is arguments_of(getattr(AgentRef, verb.method))


@by_name
def test_a_verb_is_a_command_or_says_why_not(verb: Verb) -> None:
    commands: Any = get_command(app)
    name = CLI.get(verb.name, verb.name.replace("_", "-"))
    assert (name in commands.commands) is ("cli" not in verb.lacks)
    if verb.plain:
        given = {parameter.name for parameter in commands.commands[name].params}
        assert arguments_of(getattr(AgentRef, verb.method)).model_fields.keys() < given


def test_each_verb_is_a_tool_of_the_mcp_server_or_says_why_not() -> None:
    assert set(TOOLS.values()) == {verb.name for verb in VERBS.values() if "mcp" not in verb.lacks}


def test_each_verb_is_called_by_ag_ui_or_says_why_not() -> None:
    sources = (file.read_text() for file in (ROOT / "understudy/ag_ui").glob("*.py"))
    called = {verb for text in sources for verb in re.findall(r'need\(.*?user, "(\w+)"', text)}
    assert called == {verb.name for verb in VERBS.values() if "ag_ui" not in verb.lacks}


MESSAGES: tuple[Any, ...] = (
    m.RunRequest(
        MessageQueued(
            message_id="m1",
            message=user_message("go", at=NOW),
            choices=RunChoices(until_tool=("file",), max_runs=3, deadline=5.0, ends_at=NOW),
            context={"tenant": "a"},
            by="ann",
        ),
        refuse_if_interrupted=True,
    ),
    m.Send(
        MessageQueued(
            message_id="m2",
            message=user_message("go", at=NOW),
            steer=True,
            self_sent=True,
            due=NOW,
            context={"tenant": "a"},
            by="ann",
        )
    ),
    m.CancelMessage("m1", by="ann"),
    m.ChangePlans(PlanChange("set", "daily", SCHEDULE)),
    m.ChangePlans(PlanChange("trigger", "daily", at=NOW, message_id="m3", by="ann")),
    m.Resume({"r": approve(by="ann").to_dict()}, {"r": "digest"}, {"tenant": "a"}),
    m.Decide({"r": approve(by="ann").to_dict()}),
    m.Cancel(StopSignal.user_requested("no", by="ann"), "run", message_id="m1"),
    m.Pause("run", "ann", "lunch"),
    m.Unpause("run", by="ann"),
    m.Retry("run", by="ann"),
    m.Notify("Notes", {"a": [1, None]}),
    m.Passivate(),
    m.Compact(by="ann"),
    m.Delete(StopSignal.user_requested("deleted"), by="ann"),
    m.RecordFact(Settled(call_key="k", how="it came", happened=False, by="ann")),
    m.RecordFact(Revoked(grant_id="q-1", by="ann")),
    m.RecordFact(ReviewClosed(review_id="q", person="7", by="ann", note="fine")),
    m.ChangeFiles(
        FilesChanged(files=(FileChange(path="a", file=FILE), FileChange(path="b"))),
        {FILE.hash: b"\x00\xff"},
        {"a": None, "b": FILE},
    ),
    m.AnswerWait("hash", resolved({"a": 1}, by="ada")),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_call_is_read_as_it_was_posted(message: Any) -> None:
    kind, body = body_of(message, owner="owner", expects="desk", has_deps=False)
    assert ROWS[kind] is VERB_OF[type(message)]
    assert message_of(kind, body) == (message, "desk", False)


def test_a_row_says_what_a_decision_comes_from_only_where_its_host_does() -> None:
    """I14: a decision in its plain form is of a client, and a row of a host."""
    failed = Decision(type="reject", origin="executor", message="No light.", by="ann")
    posted = m.Resume({"r": failed})
    kind, body = body_of(posted, owner="owner", expects=None)
    read: Any = message_of(kind, body)[0]
    assert read.decisions == {"r": failed}
    with pytest.raises(DecisionError, match="only the library sets `origin`"):
        body_of(m.Resume({"r": failed.to_dict()}), owner="owner", expects=None)


def test_the_sample_of_each_message_with_an_author_has_one() -> None:
    authors = [each.by for each in MESSAGES if "by" in each.__dataclass_fields__]
    assert authors == ["ann"] * len(authors) != []


def test_a_call_of_each_kind_is_read_as_it_was_posted() -> None:
    assert {VERB_OF[type(message)].row_kind for message in MESSAGES} == ROWS.keys()


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (MESSAGES[3], SCHEDULE),
        (MESSAGES[3], Occurrence(schedule_id="daily", due=NOW, triggered=True)),
        (MESSAGES[3], None),
        (MESSAGES[1], "m2"),
        (MESSAGES[2], True),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_a_call_brings_is_read_as_it_was_replied(message: Any, value: Any) -> None:
    reply = json.loads(reply_to(VERB_OF[type(message)].row_kind, value))
    assert value_of_reply(message, reply) == value


@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS.values() if verb.said], ids=lambda v: v.name
)
def test_a_command_says_what_its_verb_says(verb: Verb) -> None:
    """Its text is written out in the command, which imports nothing of the agents themselves."""
    files = (ROOT / "understudy/cli").glob("*.py")
    texts = " ".join(path.read_text(encoding="utf-8") for path in files)
    assert verb.name in ("require", "required") or verb.said in texts
