"""Records, states and errors in which every field has a value that is not its default.

`write` stores them under `tests/data`. Add a new kind or field here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage, RunUsage

from understudy import Agent, ScriptedModel
from understudy import errors as e
from understudy import middleware as all_middleware
from understudy._base.authors import Login
from understudy._base.grant_terms import ALWAYS, GrantOffer, GrantTerms
from understudy._base.request_timing import Escalation
from understudy.actors import ActorDied, RuntimeStopped
from understudy.actors.agent.activation import RunAbandoned
from understudy.actors.agent.runs.ends import RunCrashed
from understudy.approvals import Approval, Represented, Vote
from understudy.errors import UnderstudyError
from understudy.interrupts import (
    Decision,
    DecisionRecord,
    DoubtfulCall,
    EarlierCall,
    Grant,
    Request,
)
from understudy.loop_actors.supervisor import (
    ChildNotRunning,
    ChildStartFailed,
    NoSuchChild,
    RestartIntensityExceeded,
    Shutdown,
)
from understudy.middleware import Haltable, Limits, Middleware
from understudy.models.messages import Messages
from understudy.modes import Loop, Mode, Parallel, Sequential
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.blobs import pack
from understudy.state.costs import CostLine
from understudy.state.done_calls import DoneCall, DoneCalls
from understudy.state.doubts import Finding
from understudy.state.files import FileChange
from understudy.state.fold import replay
from understudy.state.held_keys import HeldKey
from understudy.state.plans import (
    BackgroundCall,
    Occurrence,
    Plans,
    QueuedMessage,
    RunChoices,
    Schedule,
    TakenMessage,
)
from understudy.state.request_notes import RequestNote
from understudy.state.reviews import Review
from understudy.state.run_state import (
    Call,
    Continued,
    Left,
    ModelCall,
    Notices,
    NotKept,
    Point,
    PointAnswer,
    RunState,
    Turn,
)
from understudy.state.trust_facts import (
    AdminRequested,
    AdminUsed,
    AdminVoted,
    BudgetRaised,
    Delegated,
    DelegationEnded,
    FactContent,
    Frozen,
    NotRequired,
    Required,
    RulesRegistered,
    RulesRetired,
    RuleSummary,
    Thawed,
)
from understudy.state.workflow_progress import AgentResult, Progress, Shared, View
from understudy.stopping import StopReason, StopSignal, StopSignals

__all__ = [
    "AGENTS",
    "ARCHIVED",
    "DELETED",
    "FACTS",
    "LOST_ATTEMPTS",
    "NOTES",
    "START",
    "sample_errors",
    "sample_names",
    "sample_state",
]

START = datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=timezone.utc)
ELSEWHERE = timezone(timedelta(hours=5, minutes=30))
FINGERPRINT = "f1" * 32


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


# ------------------------------------------------------------------- messages


def asked(text: str, seconds: float = 0.0, **fields: Any) -> ModelRequest:
    when = at(seconds)
    return ModelRequest(parts=[UserPromptPart(text, timestamp=when)], timestamp=when, **fields)


def rich_question() -> ModelRequest:
    content: list[UserContent] = [
        "Look at these: ä, €, 𝄞",
        ImageUrl("https://example.org/a.png"),
        DocumentUrl("https://example.org/a.pdf"),
        BinaryContent(b"\x00\xffgif", media_type="image/gif"),
    ]
    return ModelRequest(
        parts=[UserPromptPart(content, timestamp=at(1))],
        timestamp=at(1),
        metadata={"author": None},
        run_id="model-run",
        conversation_id="conversation",
    )


def usage() -> RequestUsage:
    return RequestUsage(
        input_tokens=11,
        cache_write_tokens=12,
        cache_read_tokens=13,
        output_tokens=14,
        input_audio_tokens=15,
        cache_audio_read_tokens=16,
        output_audio_tokens=17,
        details={"reasoning": 18},
        cost=Decimal("0.0123"),
    )


def run_usage() -> RunUsage:
    used = RunUsage(requests=2, tool_calls=3)
    used.incr(usage())
    return used


def cost_line() -> CostLine:
    return CostLine(agent="holding", model="fake-0", requests=2, unknown=1, cost=Decimal("1E-7"))


def tool_call(number: int, **fields: Any) -> ToolCallPart:
    return ToolCallPart("pay", {"n": number}, tool_call_id=f"call_{number}", **fields)


def reply(*calls: ToolCallPart, seconds: float = 2.0) -> ModelResponse:
    """A reply of the parts that are stored the slim way, as long as they are plain."""
    return ModelResponse(
        parts=[
            ThinkingPart("hm", id="th", signature="sig", provider_name="fake"),
            TextPart("I pay.", id="tx", provider_name="fake", provider_details={"a": 1}),
            *calls,
        ],
        usage=usage(),
        model_name="fake-1",
        timestamp=at(seconds),
        provider_name="fake",
        provider_details={"b": [2]},
        provider_response_id="resp",
        finish_reason="tool_call",
        metadata={"c": None},
    )


def rich_reply() -> ModelResponse:
    """A reply with the other parts, too."""
    return ModelResponse(
        parts=[
            FilePart(BinaryContent(b"\x89png", media_type="image/png"), id="file"),
            NativeToolCallPart("web_search", {"q": "x"}, tool_call_id="native", id="nc"),
            NativeToolReturnPart("web_search", ["found"], tool_call_id="native", timestamp=at(3)),
            CompactionPart("in short", id="cp", provider_name="fake"),
            TextPart("Here it is."),
        ],
        usage=RequestUsage(input_tokens=1, unpriced_requests=1),
        timestamp=at(3).astimezone(ELSEWHERE),
        finish_reason="stop",
        state="interrupted",
    )


def returned(number: int, content: Any = "paid", **fields: Any) -> ToolReturnPart:
    return ToolReturnPart(
        "pay", content, tool_call_id=f"call_{number}", timestamp=at(4), metadata={"m": 1}, **fields
    )


def beside() -> UserPromptPart:
    """What a tool gives the model beside its result."""
    picture = BinaryContent.narrow_type(BinaryContent(b"\x89png", media_type="image/png"))
    return UserPromptPart(["the receipt", picture], timestamp=at(4))


def history() -> tuple[ModelRequest | ModelResponse, ...]:
    return (
        ModelRequest(
            parts=[
                SystemPromptPart("Be kind.", timestamp=at(0)),
                UserPromptPart("Hello", timestamp=at(0)),
            ],
            timestamp=at(0),
        ),
        rich_reply(),
        rich_question(),
        reply(tool_call(90), tool_call(91), seconds=3),
        ModelRequest(
            parts=[returned(90, {"deep": [1, 2.5, None, True]}), returned(91, outcome="failed")],
            timestamp=at(4),
        ),
        ModelResponse(parts=[TextPart("Paid.")], timestamp=at(5)),
    )


# ------------------------------------------------------------------ nested values


def signal(reason: StopReason = StopReason.TOKEN_LIMIT, source: str = "limits.max_tokens") -> Any:
    return StopSignal(reason, "900 of 800 used", {"used": 900}, source).to_dict()


def all_signals() -> dict[str, Any]:
    signals = [StopSignal(reason, f"by {reason.value}", {"n": 1}, "guard") for reason in StopReason]
    return StopSignals(tuple(signals)).to_dict()


def error() -> dict[str, Any]:
    return e.StepFailed(step="call_llm", cause="ValueError: no").to_dict()


def doubt(key: str, token_hashes: tuple[str, ...] = ("e2" * 32,), **fields: Any) -> DoubtfulCall:
    return DoubtfulCall(
        call_key=key,
        tool_name="pay",
        tool_call_id="call_9",
        arguments={"n": 9},
        reason="cut off",
        agent="desk",
        since=at(9),
        token_hashes=token_hashes,
        **{"ends_at": at(10), **fields},
    )


def whole_approval() -> Approval:
    return Approval(
        ways=({"finance": 2}, {"ceo": 1}),
        deny=2,
        never=("requester",),
        within=3600.0,
        use_after=60.0,
        use_within=600.0,
        break_glass={"oncall": 1},
        assurance="login",
        max_auth_age=900.0,
    )


def voted_on(id: str, key: str) -> Request:
    """A request that asks several persons."""
    return request(id, key, approval=whole_approval(), requesters=("ada",), offer=SMALL_OFFER)


def votes() -> tuple[Vote, ...]:
    return (
        Vote(person="1", name="Bo", login="bo", roles=("finance",), type="approve", at=at(11)),
        Vote(
            person="2",
            name="Cy",
            login="cy@work",
            roles=("finance", "ceo"),
            type="reject",
            message="too much",
            note="no",
            assurance="login",
            grant=GrantTerms(seconds=3_600.0, match=(), scope=None),
            at=at(11),
        ),
        Vote(
            person="2",
            name="Cy",
            login="cy",
            roles=("ceo",),
            type="approve",
            assurance="idp",
            auth_at=at(10),
            at=at(11),
            issuer="https://idp.example",
            subject="00u1",
            grant=GrantTerms(seconds=60.0),
            acting_for="dee",
            represents=Represented(
                delegation="d1", person="9", name="Eva", roles=("ceo",), until=at(99)
            ),
        ),
        Vote(
            person="3",
            name="Oz",
            login="oz",
            roles=("oncall",),
            type="approve",
            note="on fire",
            break_glass=True,
            at=at(11),
        ),
    )


OFFER = GrantOffer(seconds=3_600.0, uses=5, free=("n",), scope="agent")
SMALL_OFFER = GrantOffer()


def reviews() -> tuple[Review, ...]:
    """One with each field, and one of another person without those that may be left out."""
    full = Review(
        id="q4b",
        agent_id="a",
        agent="desk",
        agent_path=("desk", "helper"),
        run_id="run-1",
        call_key="run-1.0.4",
        tool_name="pay",
        arguments={"n": 4},
        must_agree="2 of finance",
        roles=("finance",),
        person="3",
        by="Oz",
        login="oz",
        note="on fire",
        assurance="login",
        at=at(11),
        requesters=("9",),
    )
    return (
        full,
        replace(full, id="q4c", assurance="idp"),
        replace(full, id="q4", assurance="host", requesters=()),
    )


def request(id: str, key: str, kind: str = "approval", **fields: Any) -> Request:
    given: dict[str, Any] = {
        "id": id,
        "kind": kind,
        "agent_id": "desk",
        "run_id": "run-1",
        "agent_path": ("desk", "clerk"),
        "call_key": key,
        "tool_call_id": "call_0",
        "tool_name": "pay",
        "arguments": {"n": 0},
        "display": {"title": "Pay?"},
        "title_format": "Pay {n}",
        "payload": {"why": "policy"},
        "allowed": ("approve", "reject"),
        "created_at": at(6),
        "expires_at": at(66),
        "remind_at": (at(16), at(26)),
        "escalations": (Escalation(at=at(36), audience="heads"),),
        "on_expiry": "stop",
        "fingerprint": FINGERPRINT,
        "digest": "d1" * 32,
        "salt": "5a" * 16,
        "source": "HumanInTheLoop",
        "schema": {"type": "string", "enum": ["yes", "no"]},
        "question_key": "may I",
        "doubts": (
            doubt("run-0.0.0", call_approval=whole_approval(), requesters=("ada",)),
            doubt("run-0.0.1", token_hashes=(), agent_id="other", status="done", ends_at=None),
            doubt("run-0.0.2", token_hashes=(), status="open", ends_at=None, checks_at=at(70)),
        ),
        "earlier": (
            EarlierCall(
                tool_call_id="call_8",
                outcome="denied",
                content="too much",
                at=at(3),
                agent="clerk",
                found_by="ada",
                found="the bank says so",
            ),
            EarlierCall(tool_call_id="call_7", outcome="open", content="", at=None),
        ),
        "asked_again": "Its tool is not what was decided about.",
        "call_approval": whole_approval(),
        "context": {"tenant": "acme"},
        "offer": OFFER,
    }
    return Request(**{**given, **fields})


def halt(key: str) -> Request:
    return request("halt-1", key, "halt", allowed=("dismiss",), payload="stop it all")


EDITED = Decision(
    type="edit",
    arguments={"n": 2},
    by="ada",
    note="less",
    completed={"n": 2, "key": "k1"},
    seen="scrolled",
)
REJECTED = Decision(
    type="reject", message="never", grant=ALWAYS, by="bob", note="policy", origin="executor"
)
EXPIRED = Decision(type="reject", origin="expiry")
LOGIN = Login(
    name="ada",
    issuer="https://idp.example",
    subject="00u2",
    acting_for="bob",
    assurance="idp",
)
TERMS = GrantTerms(until=at(90), uses=3, match=("n",), scope="agent")
APPROVED = Decision(type="approve", grant=TERMS, by="ada", note="fine")
BY_GRANT = Decision(type="approve", by="ada", by_grant="q-0")
GLASS = Decision(type="approve", by="Oz", note="on fire", break_glass=True)
RESPONDED = Decision(type="respond", value={"paid": "by hand"}, by="ada", note="did it")
DISMISSED = Decision(type="dismiss", by="ada", note="seen")


def end(tool_call: str | None = None, **fields: Any) -> r.End:
    given: dict[str, Any] = {
        "outcome": "stopped",
        "text": "as far as I came",
        "tool_call": tool_call,
        "tool_arguments": {"n": 1},
        "error": error(),
        "signals": StopSignals((StopSignal.token_limit("900 of 800 used"),)).to_dict(),
        "early_stopped": True,
        "output": {"total": 3},
        "has_output": True,
        "output_key": "report",
    }
    return r.End(**{**given, **fields})


def started(run_id: str, agent: str, **fields: Any) -> r.RunStarted:
    given: dict[str, Any] = {
        "run_id": run_id,
        "agent": agent,
        "at": at(7),
        "message": asked("Pay the bill", 7),
        "until_tool": ("finish", "give_up"),
        "require_tool_success": True,
        "max_runs": 7,
        "early_stopping": "generate",
        "fingerprint": FINGERPRINT,
        "deps_given": True,
        "pause_when_given": True,
        "values": {"language": "de"},
        "agent_id": agent,
        "deadline": 90.5,
        "max_overrides": 2,
        "contents": "none",
        "forced": True,
        "ends_at": at(900),
        "occurrence": occurrence(),
        "context": {"tenant": "acme", "locale": ""},
        "initial": (asked("Who is Ann?", 6),),
        "told": "Be brief.",
        "doubt_ends": 3600.0,
        "by": ("ada", "bob"),
        "also_unnamed": True,
        "status": "running",
    }
    return r.RunStarted(**{**given, **fields})


def occurrence(**fields: Any) -> Occurrence:
    given: dict[str, Any] = {"schedule_id": "nightly", "due": at(50), "triggered": True}
    given |= {"by": "ada", "authors": ("bob", LOGIN, None)}
    return Occurrence(**{**given, **fields})


def schedule(id: str = "nightly", **fields: Any) -> Schedule:
    given: dict[str, Any] = {
        "id": id,
        "name": "Nightly report",
        "cron": "30 2 * * mon-fri",
        "timezone": "Europe/Berlin",
        "message": rich_question(),
        "missed": "all",
        "overlap": "queue",
        "created_at": at(17),
        "next_due": at(50),
        "paused": True,
        "latest": occurrence(skipped="full"),
        "context": {"tenant": "acme"},
        "by": "ada",
        "authors": ("bob", LOGIN),
    }
    return Schedule(**{**given, **fields})


def bare_schedule(id: str, **fields: Any) -> Schedule:
    given: dict[str, Any] = {"name": id, "message": asked("Report"), "overlap": "skip"}
    given |= {"id": id, "cron": "0 9 * * *", "timezone": "UTC", "created_at": at(17)}
    return Schedule(**{**given, "missed": "one", "next_due": at(60), **fields})


def bare_run(agent: str) -> r.RunStarted:
    return r.RunStarted(
        run_id="run-1",
        agent=agent,
        at=at(7),
        message=None,
        until_tool=None,
        require_tool_success=False,
        max_runs=50,
        early_stopping="force",
        fingerprint=FINGERPRINT,
        deps_given=False,
        pause_when_given=False,
    )


def bare_request(id: str, key: str) -> Request:
    return Request(
        id=id,
        kind="approval",
        agent_id="resting",
        run_id="run-1",
        agent_path=("resting",),
        call_key=key,
        tool_call_id="call_0",
        tool_name="pay",
        arguments={},
        created_at=at(8),
        fingerprint=FINGERPRINT,
        digest="d1" * 32,
    )


# ------------------------------------------------------------------- the agents


def desk() -> Iterator[r.Record]:
    """One run with everything that a run may meet, and one that a tool halts."""
    yield r.AgentCreated(values={"customer": {"name": "Ada", "vip": True}, "list": [1, 2.5, None]})
    yield r.StatusNoted(status="running", runs=2)
    yield r.MessageQueued(
        message_id="m1",
        message=asked("first"),
        by="ada",
        steer=True,
        self_sent=True,
        context={"tenant": "acme"},
    )
    yield r.MessageQueued(message_id="m2", message=rich_question())
    yield started("run-1", "desk", message_ids=("m2",), message=rich_question())
    yield r.Attempt(number=1)
    yield r.AttemptClosed()
    yield r.Attempt(
        number=2, reply_lost=True, host="host-b", trace=TRACE, by="ada", status="running"
    )
    yield r.HooksRan()
    yield r.ValuesMerged(delta={"customer": {"vip": False}}, source="Vip")
    yield r.HistoryReplaced(messages=history())
    yield r.Once(key="Vip/greeting", value={"sent": True})
    answered = replace(reply(), parts=[])
    yield r.ModelAsked(key="title", response=answered, value={"title": "Kettles"})
    yield r.ModelGaveNoAnswer(key="title", response=reply(), error="it does not fit")
    yield r.UserMessage(message=asked("and the other one", 8), message_ids=("m1",), by="ada")
    yield r.UserMessage(message=asked("and that", 8), message_ids=("m1b",), by=LOGIN)
    yield r.UserMessage(message=asked("and this", 8), by=Login(name="ada"))
    by_host = Login(name="ada", acting_for="bob", assurance="host")
    yield r.UserMessage(message=asked("and this, too", 8), by=by_host)
    yield r.TimeSpent(seconds=12.25)
    calls = [tool_call(0, id="tc", provider_details={"d": 4}), *map(tool_call, range(1, 12))]
    yield r.Reply(turn=0, response=reply(*calls))
    yield r.PauseChecked(turn=0)
    yield r.Paused(turn=0, reason="a person looks", by="ada")
    yield r.Unpaused(by="bob")
    yield r.Quarantined(cause="killed three times")
    yield r.Released(by="ada")
    yield r.Quarantined(cause="killed three times")
    yield r.Released()
    yield from _questions()
    yield from _results()
    yield r.Propagated(turn=0, at=at(12))
    yield r.Signalled(turn=1, signal=signal(), answer=True)
    yield r.Override(turn=1, source="Patience", prompt="go on, please")
    yield r.EarlyStopBegun(turn=1, message=asked("answer now", 13, metadata={"for_itself": True}))
    yield r.TurnClosed(turn=0, message=asked("go on", 13))
    broken = e.StreamBroken(model="fake-1", cause="EOF").to_dict()
    yield r.Reply(turn=1, response=reply(tool_call(20)))
    yield r.Paused(turn=1, reason="a person looks again", by=LOGIN)
    yield r.Unpaused()
    yield r.PauseChecked(turn=1)
    yield r.InterruptsChecked(turn=1)
    yield r.Result(call_key="run-1.1.0", part=returned(20))
    yield r.Propagated(turn=1, at=at(14))
    yield r.TurnClosed(turn=1)
    yield r.Reply(turn=2, response=rich_reply(), cut=True, broken=broken)
    yield r.CancelRequested(signal=signal(StopReason.USER_REQUESTED, "ada"))
    yield r.TurnClosed(turn=2, end=end(), message=asked("too late", 14))
    yield r.RunEnded(end=end(outcome="completed", tool_call="run-1.0.0"), at=at(14), status="idle")
    yield from _halted()


def _questions() -> Iterator[r.Record]:
    """Of the calls 0 to 5 a person is asked; 5 is withdrawn, 0 is asked anew."""
    asked_first = [request(f"q{n}", f"run-1.0.{n}", tool_call_id=f"call_{n}") for n in range(6)]
    yield r.InterruptsChecked(
        turn=0,
        requests=tuple(asked_first),
        arguments={"run-1.0.0": {"n": 0, "key": "k0"}},
        asked_by="p1 d1",
        decided=(r.Decided(request_id="q1", decision=BY_GRANT, at=at(9)),),
    )
    yield r.Reminded(request_id="q0", number=2, at=at(27))
    yield r.Escalated(request_id="q0", number=1, audience="heads", at=at(37))
    yield r.Decided(
        request_id="q0", decision=EDITED, at=at(9), context={"tenant": "acme"}, login=LOGIN
    )
    yield r.Requested(
        request=request("q0b", "run-1.0.0", display="Really?", title_format="Ask {n}"),
        replaces=("q0",),
        call_arguments={"n": 2, "key": "k1"},
        not_entered=True,
        reply_size=6,
    )
    yield r.Decided(request_id="q0b", decision=APPROVED, at=at(10))
    yield r.Decided(request_id="q2", decision=REJECTED, at=at(10))
    yield r.Decided(request_id="q2", decision=EXPIRED, at=at(10))
    yield r.Decided(request_id="q3", decision=RESPONDED, at=at(10))
    yield r.Revoked(grant_id="q0b", by="ada")
    yield r.Revoked(grant_id="q0b")
    yield r.Decided(request_id="q4", decision=APPROVED, at=at(11).astimezone(ELSEWHERE))
    voted, cast = voted_on("q4b", "run-1.0.4"), votes()
    yield r.Requested(request=voted, votes=cast[:1])
    for vote in cast[:2]:
        yield r.Voted(request_id="q4b", vote=vote)
    yield r.Voted(request_id="q4b", vote=cast[2], missing="1 more of finance")
    yield r.Voted(request_id="q4b", vote=cast[3], approved_at=at(12))
    for review in reviews():
        yield r.GlassBroken(review=review)
    yield r.ReviewClosed(review_id="q4", person="2", by="Cy", note="fine")
    yield r.ReviewClosed(review_id="q4", person="2", by="Cy")
    strict = Approval(ways=({"ceo": 1},), assurance="idp")
    yield r.Requested(request=replace(voted, id="q4c", approval=strict))
    yield r.Decided(request_id="q4c", decision=REJECTED, at=at(11))
    simple = Approval(ways=({"ceo": 1},))
    yield r.Requested(request=replace(voted, approval=simple), replaces=("q4b",))
    yield r.Decided(request_id="q4b", decision=GLASS, at=at(11))
    yield r.Withdrawn(request_ids=("q5",))


def _results() -> Iterator[r.Record]:
    """The calls come back in every way that there is; 11 runs agents in agents."""

    def key(number: int) -> str:
        return f"run-1.0.{number}"

    def start(number: int, **fields: Any) -> r.Started:
        given: dict[str, Any] = {"tool_name": "pay", "tool_call_id": f"call_{number}", "attempt": 1}
        return r.Started(call_key=key(number), **{**given, **fields})

    yield start(0, attempt=2, effect="idempotent", epoch=3, arguments={"n": 2, "key": "k1"})
    yield r.Result(
        call_key=key(0),
        part=returned(0),
        value={"paid": 1.5},
        value_is="separate",
        state={"paid": {"0": True}},
        escalate=True,
        skip_summarization=True,
        user_prompt=beside(),
        files=(FileChange(path="a.md", file=FILE), FileChange(path="gone.md")),
    )
    yield r.FilesChanged(files=(FileChange(path="b/c.md", file=FILE),), at=at(10))
    yield r.FilesChanged(files=(FileChange(path="b/c.md"),))
    yield r.Result(call_key=key(1), part=returned(1, 3), value=None, value_is="lost")
    yield r.Result(call_key=key(2), part=returned(2, "never", outcome="denied"))
    yield r.Result(call_key=key(3), part=returned(3, {"paid": "by hand"}), value_is="given")
    yield start(4)
    yield r.Result(call_key=key(4), part=returned(4, outcome="interrupted"), doubt="cut off")
    yield r.Settled(call_key=key(4), how="paid", by="ada")
    yield r.Settled(
        call_key=key(4), how="late answer", token_hash="0" * 64, answer="value", value={"by": "ann"}
    )
    yield r.Settled(
        call_key=key(4), how="late answer", token_hash="1" * 64, answer="rejected", reason="no"
    )
    yield r.Settled(call_key=key(4), how="not paid", happened=False, by=LOGIN)
    yield r.Settled(call_key=key(4), how="nobody settled it in time", ended=True)
    yield r.Result(call_key=key(5), part=returned(5, outcome="denied"))
    yield start(6, key_hash="e3" * 32)
    yield r.Result(call_key=key(6), part=returned(6, outcome="interrupted"), doubt="still open")
    yield start(7, key_hash="e4" * 32)
    yield r.Result(call_key=key(7), part=returned(7), signal=signal(StopReason.STOP_REQUESTED))
    yield start(8, effect="read_only")
    yield r.Result(call_key=key(8), part=returned(8, outcome="failed"), settled="check")
    yield start(9)
    yield r.Result(call_key=key(9), part=returned(9, outcome="failed"), ran=True)
    yield r.Result(call_key=key(10), part=returned(10, outcome="failed"), not_entered=True)
    yield start(11)
    yield from _nested(key(11))
    yield from _points(key(11))
    yield r.Suspended(call_key=key(11), not_entered=True)
    yield start(11)
    yield r.Suspended(call_key=key(11))
    yield r.Result(call_key=key(11), part=returned(11, [BinaryContent(b"x", media_type="a/b")]))


def _points(key: str) -> Iterator[r.Record]:
    """What the tool of a call does once, and where it sleeps and waits; with all ends."""

    def reached(name: str, what: Any, **fields: Any) -> r.Record:
        return r.PointReached(call_key=key, name=name, what=what, at=at(10), **fields)

    def answered(name: str, what: r.PointKind, how: r.PointEnd, **fields: Any) -> r.Record:
        return r.PointAnswered(call_key=key, name=name, what=what, how=how, at=at(11), **fields)

    yield answered("create", "once", "value", value={"id": 7})
    yield answered("log", "once", "failed", reason="no JSON")
    yield answered("sent", "wait", "value", value=7, by=LOGIN)
    yield answered("read", "wait", "rejected", reason="no", by="ada")
    yield r.TokenMade(call_key=key, name="paid", token_hash="d1" * 32, at=at(10))
    yield reached("paid", "wait", due=at(99), suspends=False)
    yield answered("paid", "wait", "expired")
    yield reached("cool down", "sleep", due=at(98))
    yield answered("cool down", "sleep", "over")
    cause = "ConnectionError: no answer"
    yield reached("retry/1", "sleep", due=at(98), reason=cause, unknown=True)
    yield answered("retry/1", "sleep", "over")
    yield r.TokenMade(call_key=key, name="sent", token_hash="d2" * 32, at=at(10))
    yield answered("sent", "wait", "rejected", reason="no stock")
    yield r.TokenMade(call_key=key, name="seen", token_hash="d3" * 32, at=at(10))
    yield reached("seen", "wait")


def _nested(key: str) -> Iterator[r.Record]:
    def inner(record: r.Record) -> r.Record:
        return r.ChildRecord(child=f"{key}+1", name="helper", record=record)

    def innermost(record: r.Record) -> r.Record:
        return inner(r.ChildRecord(child="run-2.0.0", name="expert", record=record))

    yield inner(started("run-2", "helper"))
    yield inner(r.FilesChanged(files=(FileChange(path="d.md", file=FILE),), own=True, at=at(10)))
    yield inner(r.Reply(turn=0, response=reply(tool_call(0))))
    yield innermost(started("run-3", "expert"))
    yield innermost(r.Reply(turn=0, response=reply(tool_call(0))))
    yield innermost(r.RunEnded(end=end(outcome="completed"), at=at(11)))


def _halted() -> Iterator[r.Record]:
    yield started("run-4", "desk")
    yield r.Reply(turn=0, response=reply(tool_call(0), tool_call(1)))
    yield r.Result(
        call_key="run-4.0.0", part=returned(0, outcome="interrupted"), halt=halt("run-4.0.0")
    )
    yield r.Decided(request_id="halt-1", decision=DISMISSED, at=at(15))
    yield r.RunEnded(end=end(outcome="failed", output=None), at=at(16))
    yield started("run-5", "desk", continues="run-4")
    yield r.RunEnded(end=end(), cut_off=True, at=at(17))


def panel() -> Iterator[r.Record]:
    """A workflow: of three agents two are done, and the third is in the middle of its part."""

    def part(place: int, record: r.Record) -> r.Record:
        name = f"member{place}"
        return r.ChildRecord(child=f"run-1.{place}", name=name, record=record)

    def begin(place: int) -> r.Record:
        run_id = f"run-1.{place}.0"
        return part(place, started(run_id, f"member{place}", message=None, shares=True))

    def done(place: int, **fields: Any) -> r.Record:
        return r.SubRunEnded(
            child=f"run-1.{place}", agent=f"member{place}", index=place, at=at(20), **fields
        )

    members = "sequential(member0, member1, member2)"
    yield started("run-1", "panel", workflow=members, contents="default")
    yield r.Attempt(number=1)
    yield begin(0)
    yield part(0, r.Reply(turn=0, response=reply(tool_call(0))))
    asked_here = request("p0", "run-1.0.0.0.0", agent_id="panel", source="HumanInTheLoop")
    yield part(0, r.InterruptsChecked(turn=0, requests=(asked_here,)))
    yield part(0, r.Decided(request_id="p0", decision=APPROVED, at=at(18)))
    yield part(0, r.Result(call_key="run-1.0.0.0.0", part=returned(0), state={"a": {"b": 1}}))
    yield part(0, r.Propagated(turn=0, at=at(19)))
    yield part(0, r.TurnClosed(turn=0, end=end(outcome="completed")))
    yield part(0, r.RunEnded(end=end(outcome="completed"), at=at(19)))
    yield done(0, round=0, outcome="completed", escalated=True, passes_on=True)
    yield begin(1)
    yield part(1, r.RunEnded(end=end(outcome="failed"), at=at(19)))
    yield done(1, round=1, outcome="failed")
    yield begin(1)
    yield part(1, r.RunEnded(end=end(), at=at(19)))
    yield done(1, round=2, outcome="stopped", passes_on=True)
    yield begin(2)
    yield part(2, r.Reply(turn=0, response=reply(tool_call(0))))
    yield part(2, r.HistoryReplaced(messages=history()[:1]))
    yield part(2, r.ValuesMerged(delta={"seen": [2]}, source="Vip"))
    yield part(2, r.UserMessage(message=asked("hurry", 21)))


def archived() -> Iterator[r.Record]:
    """What was compacted, and then put into another store."""
    yield r.Snapshot(state=_stored_state(), by="ada", following=len(history()))
    yield r.SnapshotMessages(messages=history())
    yield r.Imported(at=at(30), agent_id="attic", incarnation=4)
    yield r.Imported(at=at(30), agent_id="attic", incarnation=4, by="ada")
    yield r.StatusNoted(status="interrupted")


def without_times() -> Iterator[r.Record]:
    """Records without a time."""
    yield from desk()
    yield r.MessagesArchived(runs={})
    yield r.Snapshot(state=_stored_state())
    yield r.SnapshotMessages(messages=history()[:1])


def resting() -> Iterator[r.Record]:
    """A run of records in which whatever may be left out is left out."""
    yield r.AgentCreated(values={})
    yield bare_run("resting")
    yield r.Attempt(number=1)
    yield r.Signalled(turn=0, signal=signal())
    yield r.Override(turn=0)
    yield r.Reply(turn=0, response=reply(tool_call(0)))
    question = bare_request("q1", "run-1.0.0")
    yield r.InterruptsChecked(turn=0, requests=(question,))
    yield r.Requested(request=question)
    yield r.Decided(request_id="q1", decision=Decision(type="approve"), at=at(9))
    yield r.RunEnded(end=r.End(outcome="completed"), at=at(10))


def queued() -> Iterator[r.Record]:
    yield r.MessageQueued(message_id="m1", message=asked("later"))


def open_() -> Iterator[r.Record]:
    yield started("run-1", "open")
    yield r.Attempt(number=1)
    yield r.ReplyHeld(turn=0, response=reply())


def suspect() -> Iterator[r.Record]:
    yield bare_run("suspect")
    yield r.Attempt(number=1)
    yield r.Attempt(number=2)


def waiting() -> Iterator[r.Record]:
    yield started("run-1", "waiting")
    yield r.Reply(turn=0, response=reply(tool_call(0)))
    yield r.Paused(turn=0, reason="lunch")


def sleeping() -> Iterator[r.Record]:
    """A tool sleeps, and nothing else is under way."""
    yield started("run-1", "sleeping")
    yield r.Reply(turn=0, response=reply(tool_call(0)))
    yield r.Started(call_key="run-1.0.0", tool_name="pay", tool_call_id="call_0", attempt=1)
    yield r.PointReached(call_key="run-1.0.0", name="nap", what="sleep", at=at(12), due=at(40))
    yield r.StatusNoted(status="waiting")


def plain() -> Iterator[r.Record]:
    """A run in which nothing but the steps of the library looks at a turn before it is closed."""
    yield started("run-1", "plain")
    yield r.Reply(turn=0, response=reply(tool_call(0)))
    yield r.Started(
        call_key="run-1.0.0",
        tool_name="pay",
        tool_call_id="call_0",
        attempt=1,
        gates_asked_by="p1 d1",
    )
    yield r.Result(call_key="run-1.0.0", part=returned(0), closes_turn=True)
    yield r.Reply(turn=1, response=reply())
    yield r.RunEnded(end=end(outcome="completed"), at=at(14), closes_turn=True)


def checking() -> Iterator[r.Record]:
    """A call in doubt whose check was asked once, and is asked again later."""
    yield started("run-1", "checking")
    yield r.Reply(turn=0, response=reply(tool_call(0)))
    yield r.Started(call_key="run-1.0.0", tool_name="pay", tool_call_id="call_0", attempt=1)
    for number, due in ((1, at(72)), (2, at(132))):
        check = f"check/{number}"
        yield r.PointReached(
            call_key="run-1.0.0", name=check, what="check", at=at(12), due=due, reason="no answer"
        )
        if number == 1:
            yield r.PointAnswered(
                call_key="run-1.0.0", name=check, what="check", how="over", at=at(72)
            )
    yield r.StatusNoted(status="waiting")


def asking() -> Iterator[r.Record]:
    """A person was reminded twice; the escalation is due next."""
    yield started("run-1", "asking")
    yield r.Reply(turn=0, response=reply(tool_call(0)))
    yield r.InterruptsChecked(turn=0, requests=(request("q1", "run-1.0.0"),))
    yield r.Reminded(request_id="q1", number=2, at=at(27))


def holding() -> Iterator[r.Record]:
    """The model call was put off; now a person is asked about its reply."""
    key = "run-1.0.model"
    yield started("run-1", "holding")
    question = request("q0", key, "interrupt", question_key="before", tool_name="")
    yield r.Requested(request=question)
    yield r.Decided(request_id="q0", decision=RESPONDED, at=at(28))
    yield r.PointReached(
        call_key=key,
        name="retry/1",
        what="sleep",
        at=at(29),
        due=at(39),
        reason="ConnectionError: no answer",
        used=run_usage(),
        costs=(cost_line(), CostLine(agent="holding", model="free", requests=1)),
    )
    yield r.PointAnswered(call_key=key, name="retry/1", what="sleep", how="over", at=at(39))
    yield r.ReplyHeld(turn=1, response=reply(tool_call(0)))
    yield r.Requested(request=replace(question, id="q1", question_key="after"))


def all_choices() -> RunChoices:
    return RunChoices(
        until_tool=("pay",),
        require_tool_success=True,
        force=True,
        max_runs=3,
        deadline=60.0,
        early_stopping_prompt="Answer now.",
        ends_at=at(70),
        go_on=True,
    )


def background_call(**fields: Any) -> BackgroundCall:
    given: dict[str, Any] = {
        "code": "bg-1",
        "agent_id": "planning~9",
        "owner": "planning",
        "call_key": "run-1.0.0",
        "tool_call_id": "call_0_0",
        "tool_name": "crawl",
        "arguments": {"site": "a.example"},
        "agent_path": ("desk", "clerk"),
        "at": at(18),
    }
    return BackgroundCall(**{**given, **fields})


def whole_background_call() -> BackgroundCall:
    return background_call(
        authors=("ada", LOGIN, None),
        was_asked=True,
        approval=whole_approval(),
        requesters=("ada",),
    )


def background() -> Iterator[r.Record]:
    """A call that continues in the background, by the agent that makes it."""
    made, asked_for = whole_background_call(), asked("crawl", 17)
    yield r.MessageQueued(message_id="background/bg-1", message=asked_for, makes=made)
    yield started("run-1", "background", message_ids=("background/bg-1",), makes=made)


def planning() -> Iterator[r.Record]:
    """Messages with a time, schedules and their occurrences, and a pause to come."""
    for number in range(4):
        queued = asked(f"later {number}", 17)
        yield r.MessageQueued(
            message_id=f"t{number}", message=queued, steer=True, self_sent=True, due=at(40 + number)
        )
    yield r.MessageDue(message_id="t0", at=at(18))
    yield r.MessageCancelled(message_id="t1", at=at(18), by="ada")
    yield r.MessageCancelled(message_id="t0", at=at(18))
    yield r.MessageDue(message_id="t2", at=at(18))
    yield r.MessageQueued(message_id="asked", message=asked("now", 17), choices=all_choices())
    yield r.MessageQueued(message_id="refused", message=asked("now", 17), choices=RunChoices())
    yield r.MessageRefused(message_id="refused", error=e.UsageError("no").to_dict(), at=at(18))
    yield r.MessagesArchived(runs={"m-old": "run-old"}, at=at(18))
    yield r.BackgroundStarted(call=whole_background_call(), at=at(18))
    yield r.BackgroundStarted(call=background_call(code="bg-2"), at=at(18))
    yield r.MessageQueued(message_id="background/bg-1", message=asked("done", 17))
    yield r.ScheduleSet(schedule=schedule(), at=at(18))
    for id in ("daily", "gone", "ended"):
        yield r.ScheduleSet(schedule=bare_schedule(id, missed="skip"), at=at(18))
    yield r.ScheduleSet(schedule=bare_schedule("daily"), at=at(18), by=LOGIN)
    yield r.ScheduleRemoved(schedule_id="never", at=at(18))
    missed = occurrence(schedule_id="daily", triggered=False, skipped="missed", due=at(80))
    yield r.Occurred(occurrence=missed, since=at(60), next_due=at(90), at=at(18))
    came = Occurrence(schedule_id="daily", due=at(90))
    yield r.Occurred(occurrence=came, message_id="o1", next_due=at(91), at=at(90))
    for skipped in (replace(came, skipped="overlap"), replace(came, skipped="full")):
        yield r.Occurred(occurrence=skipped, next_due=at(92), at=at(91))
    yield r.Occurred(occurrence=occurrence(schedule_id="gone"), message_id="o2", at=at(18))
    yield r.ScheduleRemoved(schedule_id="gone", at=at(18), by="ada")
    ended = Occurrence(schedule_id="ended", due=at(60))
    yield r.Occurred(occurrence=ended, message_id="o3", at=at(60))
    yield r.PauseRequested(reason="look", at=at(18))
    yield r.PauseRequested(reason=None, at=at(18), by=LOGIN)
    yield r.PauseRequested(reason="look again", at=at(18), by="ada")
    yield started("run-1", "planning", message_ids=("o1",), occurrence=came)


def quarantined() -> Iterator[r.Record]:
    yield started("run-1", "quarantined")
    yield r.Quarantined(cause="killed three times")


def _timed(made: Callable[[], Iterator[r.Record]]) -> Callable[[], Iterator[r.Record]]:
    """The records as a ledger records them, each with its time."""

    def timed() -> Iterator[r.Record]:
        for number, record in enumerate(made()):
            if record.at is None:
                r.stamp(record, at(100 + number))
            yield record

    return timed


ARCHIVED = "archived"
"""This agent's records begin with a snapshot, above a floor."""
DELETED = "deleted"
"""Of this agent only the tombstone is left."""
FACTS: tuple[FactContent, ...] = (
    RulesRegistered(
        version=7,
        fingerprint="f00d",
        rules=(
            RuleSummary(
                name="two of finance",
                kind="ask",
                tool="refund*",
                agent="desk",
                approval="2 of finance",
                has_when=True,
            ),
            RuleSummary(name="deny drop", kind="deny", tool="drop"),
        ),
        default="ask",
        host="desk-1",
        python="3.11",
    ),
    RulesRetired(version=7),
    Delegated(
        id="d1",
        from_person="9",
        from_name="Eva",
        from_login="eva",
        to_person="2",
        to_name="Cy",
        roles=("ceo",),
        until=at(99),
        reason="away",
    ),
    Delegated(
        id="d2",
        from_person="9",
        from_name="Eva",
        from_login=LOGIN,
        to_person="3",
        to_name="Oz",
        roles=("ceo", "finance"),
        until=at(99),
        reason="away",
    ),
    DelegationEnded(id="d2"),
    AdminRequested(
        id="x1",
        verb="delete",
        about="delete agent 'desk'",
        digest="ab" * 32,
        approval=Approval(ways=({"ops": 1},)),
        person="9",
        name="Eva",
        until=at(99),
    ),
    *(AdminVoted(id="x1", vote=vote) for vote in votes()),
    AdminUsed(id="x1"),
    Frozen(id="z1", what="store", why="a leak"),
    Frozen(id="z2", what="tool", name="drop", why="a leak"),
    Thawed(id="z1"),
    Thawed(id="z2"),
    Required(name="budgets"),
    NotRequired(name="budgets"),
    BudgetRaised(
        budget="refunds",
        counter="refunds#0a1b2c3d",
        key="agent=desk",
        amount="12.50",
        until=at(99),
        why="a recall",
    ),
    BudgetRaised(
        budget="ever", counter="ever#0a1b2c3d", key="", amount="3", until=None, why="more"
    ),
)
"""What the log of trust has. After the last no rules have to hold, and nothing is frozen."""
LOST_ATTEMPTS = (2, 3)
"""Of each run, where the database keeps them."""
NOTES = (
    RequestNote(id="n1", kind="take", at=START, by="ada", until=START + timedelta(hours=2)),
    RequestNote(id="n2", kind="comment", at=START, by="bob", text="Who is that?"),
    RequestNote(
        id="n3",
        kind="assign",
        at=START,
        by=Login(name="ada", issuer="https://idp.example", subject="7", assurance="idp"),
        to=Login(name="bob", acting_for="cy"),
    ),
    RequestNote(id="n4", kind="snooze", at=START, by="bob", until=START + timedelta(days=1)),
    RequestNote(id="n5", kind="take", at=START, by="ada"),
)
"""What people have written beside a request; all but the last beside one that is open."""
AGENTS = {
    ARCHIVED: _timed(archived),
    "asking": _timed(asking),
    "checking": _timed(checking),
    "without_times": without_times,
    "desk": _timed(desk),
    "holding": _timed(holding),
    "open": open_,
    "panel": _timed(panel),
    "plain": _timed(plain),
    "planning": _timed(planning),
    "background": _timed(background),
    "quarantined": quarantined,
    "queued": queued,
    "resting": resting,
    "sleeping": _timed(sleeping),
    "suspect": suspect,
    "waiting": waiting,
}
"""By id, the records of each agent that is stored."""


# -------------------------------------------------------------- a state, made by hand


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FILE, BLOBS = pack(b"frozen")


def sample_state() -> AgentState:
    """Every field of the state, and of all that is in it, at a value that is not its default."""
    state = _state(_run())
    child = replay(
        [
            started("run-8", "helper", contents="default"),
            r.Reply(turn=0, response=reply(tool_call(0))),
        ]
    )
    child.children = {"run-8.0.0+1": replay([started("run-9", "expert")])}
    state.children = {"run-1.0.0": child}
    state.left = {"run-1.r0.1": replay([started("run-1.r0.1", "member1", shares=True)])}
    return state


def _stored_state() -> dict[str, Any]:
    """As a store keeps it: the bytes of files are beside it."""
    state = sample_state()
    state.blobs = None
    return state.to_dict()


def _state(run: RunState) -> AgentState:
    state = AgentState(values={"customer": {"name": "Ada"}, "n": 1.5})
    state.messages = Messages(history())
    state.run = run
    state.files, state.blobs = {"a.md": FILE}, dict(BLOBS)
    state.earlier_costs = (cost_line(),)
    record = DecisionRecord(
        request=request("q1", "k"),
        decision=EDITED,
        at=at(40),
        context={"tenant": "acme"},
    )
    simple = request("q1", "k", approval=Approval(ways=({"ceo": 1},)))
    by_votes = replace(record, request=simple, decision=GLASS, votes=votes(), login=LOGIN)
    others = (EXPIRED, REJECTED, APPROVED, BY_GRANT)
    state.decisions = [record, *(replace(record, decision=each) for each in others), by_votes]
    granted = Grant(
        id="q2",
        type="reject",
        tool_name="pay",
        fingerprint=FINGERPRINT,
        agent_id="desk",
        agent_path=("desk", "member0"),
        source="HumanInTheLoop",
        approval=Approval(ways=({"ceo": 1},)),
        offer=OFFER,
        scope="run",
        run_id="run-0",
        arguments={"n": 2},
        free=("key",),
        until=at(90),
        uses=3,
        used=1,
        open=("run-0.0.0",),
        by="bob",
        message="never",
        at=at(41),
        votes=votes(),
    )
    bare = Grant(
        id="q3",
        type="approve",
        tool_name="pay",
        fingerprint=FINGERPRINT,
        agent_id="desk",
        agent_path=("desk",),
        source="HumanInTheLoop",
        scope="agent",
        run_id="run-0",
        arguments={},
        at=at(41),
    )
    state.grants = {granted.id: granted, bare.id: bare}
    state.doubts = {
        "run-0.0.0": doubt("run-0.0.0"),
        "run-0.0.1": doubt(
            "run-0.0.1",
            ends_at=None,
            checks_at=at(70),
            call_approval=whole_approval(),
            requesters=("ada",),
        ),
    }
    state.findings = {
        "call_7": Finding(by="ada", how="the bank has not paid", happened=False),
        "call_8": Finding(by="bob", how="it was paid", happened=True),
    }
    held = HeldKey(
        key_hash="e5" * 32, tool_name="pay", tool_call_id="call_9", at=at(30), is_copied=True
    )
    state.held_keys = {"run-0.0.0": held, "run-0.0.1": replace(held, is_done=True)}
    makes = QueuedMessage(
        "m6", rich_question(), steer=False, self_sent=False, makes=whole_background_call()
    )
    waiting = QueuedMessage(
        "m3", rich_question(), steer=True, self_sent=True, due=at(44), occurrence=occurrence()
    )
    asked_for = QueuedMessage(
        "m4", rich_question(), steer=False, self_sent=False, choices=all_choices(), by="ada"
    )
    state.queue = {"m3": waiting, "m4": asked_for, "m6": makes}
    state.reviews = {each.id: each for each in reviews()}
    state.refused = {"m5": e.UsageError("no").to_dict()}
    state.message_ids = {"m3": None, "m4": None, "m2": TakenMessage("run-1", at(40)), "t1": None}
    state.has_archive = True
    timed = QueuedMessage(
        "t1",
        rich_question(),
        steer=True,
        self_sent=True,
        due=at(45),
        context={"tenant": "acme"},
    )
    state.plans = Plans(
        timed={"t1": timed},
        schedules={"nightly": schedule()},
        pause="a person wants to look",
        pause_by="ada",
        background={"bg-1": whole_background_call()},
    )
    state.status = "interrupted"
    return state


def _run(**fields: Any) -> RunState:
    result = r.Result(
        call_key="run-1.0.1",
        part=returned(1),
        value={"paid": 1.5},
        value_is="separate",
        state={"paid": True},
        doubt="cut off",
        settled="check",
        ran=True,
        not_entered=True,
        signal=signal(),
        escalate=True,
        skip_summarization=True,
        halt=halt("run-1.0.1"),
        user_prompt=beside(),
        files=(FileChange(path="a.md", file=FILE),),
        closes_turn=True,
        at=at(39),
    )
    call = Call(
        "run-1.0.0",
        tool_call(0, id="tc", provider_details={"d": 4}),
        attempts=2,
        not_entered=1,
        effect="idempotent",
        arguments={"amount": 1},
        failed_in=1,
        unknown=True,
        copied_from=True,
        running=True,
        requests={"q3": request("q3", "run-1.0.0"), "q4": voted_on("q4", "run-1.0.0")},
        votes={"q4": votes()},
        decisions={"q3": RESPONDED},
        notices={"q4": Notices(reminders=2, escalations=1)},
        points={
            "paid": Point(
                name="paid",
                kind="wait",
                since=at(10),
                due=at(99),
                reached_in=2,
                token_hashes=("d1" * 32,),
                answer=PointAnswer(how="rejected", value={"a": 1}, reason="no", at=at(11)),
            ),
            "sent": Point(name="sent", kind="wait", since=None, token_hashes=("d2" * 32,)),
            "cool down": Point(
                name="cool down",
                kind="sleep",
                since=at(9),
                due=at(10),
                answer=PointAnswer(how="over", at=at(10)),
            ),
            "seen": Point(
                name="seen",
                kind="wait",
                since=at(9),
                due=at(10),
                answer=PointAnswer(how="expired", at=at(10)),
            ),
            "create": Point(
                name="create",
                kind="once",
                since=at(9),
                answer=PointAnswer(how="value", value=7, at=at(9)),
            ),
            "mail": Point(
                name="mail",
                kind="once",
                since=at(9),
                answer=PointAnswer(how="failed", reason="no JSON", at=at(9)),
            ),
        },
        withdrawn=True,
        checks=2,
    )
    looked = Call("run-1.0.2", tool_call(2), attempts=1, effect="read_only")
    checked = Point(name="check/1", kind="check", since=at(12), due=at(72), reached_in=1)
    waits = Call("run-1.0.3", tool_call(3), attempts=1, points={"check/1": checked}, checks=1)
    turn = Turn(
        3,
        reply(*map(tool_call, range(4))),
        calls={
            call.key: call,
            "run-1.0.1": Call("run-1.0.1", tool_call(1), result=result),
            looked.key: looked,
            waits.key: waits,
        },
        cut=True,
        broken=error(),
        pause_checked=True,
        interrupts_checked=True,
        asked_by="p1 d1",
        propagated=True,
    )
    part = AgentResult(
        agent="member0",
        outcome="stopped",
        text="as far as I came",
        output=[1],
        error=error(),
        signals=end().signals,
        escalated=True,
    )
    completed = AgentResult(agent="member1", outcome="completed")
    failed = AgentResult(agent="member2", outcome="failed", error=error())
    given: dict[str, Any] = {
        "run_id": "run-1",
        "agent": "desk",
        "until_tool": ("finish",),
        "require_tool_success": True,
        "forced": True,
        "max_runs": 7,
        "early_stopping": "generate",
        "fingerprint": FINGERPRINT,
        "deps_given": True,
        "pause_when_given": True,
        "model_calls": 4,
        "attempts": 5,
        "fruitless": 6,
        "quarantined": "killed three times",
        "hooks_ran": True,
        "turns": 4,
        "turn": turn,
        "paused": "a person looks",
        "paused_by": "ada",
        "cancelled": signal(StopReason.USER_REQUESTED, "ada"),
        "closing": end(signals=all_signals()),
        "end": end(outcome="withdrawn", tool_call="run-1.0.1"),
        "ended_by": {"run-1.0.1": result},
        "ended_call": tool_call(1),
        "usage": run_usage(),
        "costs": (cost_line(),),
        "once": {"Vip/greeting": {"sent": True}},
        "agent_id": "desk-7",
        "signals": [r.Signalled(turn=2, signal=signal(), answer=True, at=at(37))],
        "overrides": [r.Override(turn=2, source="Patience", prompt="go on, please", at=at(38))],
        "max_overrides": 2,
        "early_stop": 3,
        "tool_errors": 2,
        "deadline": 90.5,
        "seconds": 12.25,
        "first_message": 2,
        "contents": "none",
        "shared": Shared(
            2,
            [asked("hello")],
            [("merge", {"a": {"b": 1}}), ("set", {"c": 2})],
            View(start=1, end=3, at=at(20)),
        ),
        "workflow": "loop(member0, member1, member2)",
        "progress": Progress(2, {0: part, 1: completed, 2: failed}, "the latest"),
        "escalated": True,
        "halt": halt("run-1.0.1"),
        "dismissed": True,
        "ends_at": at(900),
        "occurrence": occurrence(),
        "model_call": ModelCall(replace(call, key="run-1.4.model"), held=reply(tool_call(2))),
        "answers": {"may I": RESPONDED},
        "done": DoneCalls(
            newest=[
                DoneCall(tool_name="pay", arguments='{"n": 1}', agent="clerk"),
                DoneCall(tool_name="pay", arguments='{"n": 2}', in_part="'a' once"),
            ],
            others=3,
        ),
        "not_kept": {"run-1.0.9": NotKept(tool_name="pay", arguments={"n": 9}, text="pay ran")},
        "doubt_ends": 3600.0,
        "began": at(1),
        "host": "host-b",
        "trace": TRACE,
        "suspended_since": at(39),
        "left": Left(
            3,
            replace(turn, index=2),
            unread=(asked("and hurry"),),
            taken_over=True,
            done=DoneCalls(newest=[DoneCall(tool_name="pay", arguments="{}")]),
        ),
        "continues": Continued("run-0", since=at(1), retries=2, unread=(asked("and hurry"),)),
    }
    return RunState(**{**given, **fields})


# ------------------------------------------------------------------------ errors


def sample_errors() -> list[UnderstudyError]:
    """One of each class, made as the library makes it."""
    return [
        e.UnderstudyError("root", detail=1),
        e.UsageError("wrong", given="x"),
        e.DecisionError("no such request", request_id="q1"),
        e.VoteRefused("ann has no role", request_id="q1", person="ann"),
        e.ApprovalNeeded(request_id="q1", verb="delete", about="delete 'a'", missing="1 of ops"),
        e.PeopleUnavailable("nobody answers"),
        e.RequestChanged(request_id="q1", digest="a1", expected="b2"),
        e.RequestExpired(request_id="q1", expires_at="2026-01-02T03:04:05+00:00", on_expiry="stop"),
        e.NotInterrupted("nothing to answer"),
        e.AlreadyDecided(request_id="q1", decision="approve"),
        e.SearchOff(),
        e.UnknownMessage(agent_id="desk", message_id="m1"),
        e.OtherRun(agent_id="desk", run_id="r1", open_run="r2"),
        e.MissingValue(key="name", agent="desk"),
        e.UnknownAgent(agent_id="desk"),
        e.NoProgress(agent="desk", run_id="r1", retries=5),
        e.OtherWorkflow(agent="panel", was="loop(a)", now="loop(b)"),
        e.OtherAgent(agent_id="desk", agent="clerk", wanted="desk"),
        e.SchemaVersionError(
            version=9,
            known=1,
            what="record",
            library="9.0",
            format="f9",
            differences=["the column 'agents.due' is missing"],
        ),
        e.ForkedRuntime(),
        e.LoopNotRunning(is_closed=True),
        e.WouldDeadlock(what="stop", remedy="call it from a thread"),
        e.ToolRaised(tool="pay", call_key="run1/c1", cause="KeyError: 'amount'"),
        e.OutOfDescriptors(what="an event loop"),
        e.RunError("not known here"),
        e.ModelFailed(failures=[{"model": "fake", "type": "ValueError", "message": "no"}]),
        e.ModelRefused(failures=[{"model": "fake", "type": "RefusedReply", "message": "no"}]),
        e.StreamBroken(model="fake", cause="EOF"),
        e.ReplyCut(max_tokens=256, output_tokens=250),
        e.RunLimitExceeded(max_runs=7),
        e.UntilToolNotCalled(tools=["finish"], success_required=True),
        e.MiddlewareError(middleware="Vip", hook="before_model", cause="ValueError: no"),
        e.CostUnknown(middleware="Limits", hook="before_step", models=["fake"], requests=2),
        e.BudgetUnknown(budget="models", cause="no price is known for 'fake'"),
        e.BudgetUsedUp(budgets=["models"], cause="Not asked: the budget is used up"),
        e.AgentFailed(agent="member0", error=error()),
        e.DefinitionChanged(agent="panel", was="loop(a)", now="loop(b)"),
        e.NotHaltable(tool="pay", agent_path=["desk"], message="stop"),
        e.Quarantined(attempts=3, cause="killed"),
        e.StepFailed(step="call_llm", cause="ValueError: no"),
        e.EffectUnknown(tool="pay", call_key="run-1.0.0", reason="cut off"),
        e.ResultNotKept(tool="pay", call_key="run-1.0.0", text="pay ran"),
        e.UnknownToken(),
        e.Expired(agent_id="a", name="paid"),
        e.WaitEnded("over", name="paid"),
        e.WaitExpired(name="paid"),
        e.WaitRejected(name="paid", reason="no"),
        e.NotExtracted(tool="finish", outcome="Stopped"),
        e.CallLost(call="notify", host="desk-1"),
        RuntimeStopped("stopped", agent_id="desk"),
        e.AgentNotMade(agent_id="t1", agent="desk", cause="KeyError: 7"),
        e.JournalFailed("refused"),
        e.StoreError("broken"),
        e.StoreInUse(path="a.db", holder="host:1"),
        e.StoreUnavailable(cause="timeout"),
        e.StoreBroken(cause="disk full", remedy="Free space.", is_final=True),
        e.StoreDamaged(what="a record", cause="no JSON"),
        e.OwnedElsewhere(agent_id="desk", host="host:1"),
        e.UnfitHost(agent_id="desk", agent="support", missing=["gpu", "disk"]),
        e.UnfitHost(agent_id="desk", agent="support", held="rules version 6 here, 7 in the store"),
        e.Fenced(agent_id="desk", why="claimed anew"),
        e.StoreConflict(agent_id="desk", expected=2, got=3),
        e.RecordRefused(kind="reply", why="too large"),
        ActorDied(actor_urn="urn:uuid:1", actor_class="Desk", cause="ValueError: no"),
        RunCrashed("desk"),
        RunAbandoned(agent_id="desk"),
        Shutdown("enough"),
        NoSuchChild(child_id="a", known=["b"]),
        ChildNotRunning(child_id="a", status="stopped"),
        ChildStartFailed(child_id="a", cause="ValueError: no"),
        RestartIntensityExceeded(supervisor="s", child_id="a", max_restarts=3, period=5.0),
    ]


# ------------------------------------------------------------------ names in records


def sample_names() -> dict[str, Any]:
    """Names of classes and steps that stored fingerprints, workflows and requests hold."""
    exported = [getattr(all_middleware, name) for name in all_middleware.__all__]
    kinds = [kind for kind in exported if isinstance(kind, type) and issubclass(kind, Middleware)]
    bare = Agent("bare", ScriptedModel([]), middleware=[Haltable(), Limits(max_steps=1)])
    workflows = [
        _workflow(mode) for mode in (Sequential([bare]), Parallel([bare]), Loop([bare], 2))
    ]
    return {
        "middleware": sorted(kind.__qualname__ for kind in kinds),
        "steps": [list(agent.definition.mode.step_names) for agent in (bare, *workflows)],
        "workflows": [agent.definition.workflow for agent in workflows],
        "fingerprints": [agent.definition.fingerprint for agent in (bare, *workflows)],
    }


def _workflow(mode: Mode) -> Agent:
    return Agent("flow", mode=mode)
