"""How each record changes the state. None walks the history.

Every function here is deterministic: it reads no clock and creates no id, so the same records give
the same state in any process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, cast

from pydantic_ai.messages import (
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from understudy._base.shared_empties import no_items, with_added, with_item
from understudy.errors import UsageError
from understudy.interrupts import Decision, DecisionRecord, DoubtfulCall, Request, Sticky
from understudy.models.attribution import from_user
from understudy.models.messages import Messages
from understudy.state import records as r
from understudy.state.agent_state import AgentState, is_child_of
from understudy.state.costs import adding, below, complete, is_priced, line_of
from understudy.state.files import changed
from understudy.state.plans import NO_PLANS, QueuedMessage
from understudy.state.run_state import (
    NO_NOTICES,
    Call,
    ModelCall,
    Point,
    PointAnswer,
    RunState,
    Turn,
    asked_key,
    own_key,
)
from understudy.state.waits import open_calls
from understudy.state.workflow_progress import Progress, Shared
from understudy.state.workflow_sharing import (
    add_decisions_and_doubts,
    add_result,
    merge_child,
    new_child,
)

FOLD_VERSION = 5
"""Of the states that records fold to here. A checkpoint of another version is not used: raise it
where the same records fold to another state, or a state has another field."""

_UNREAD = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""A time that nobody reads: of the last message of a child whose call is over, for instance."""

NOT_RUN = "Not run: the run ended before this call was started."
IN_DOUBT = (
    "The outcome of this call is unknown: it was started and {reason}. It may or may not have "
    "taken effect. Do not repeat it; tell the user, or check by other means."
)
CHILD_STOPPED = "The agent that this call ran was stopped before it had finished."
WAITED = "Not finished: the run ended while this call waited. What it had done before stands."
MOVED_ON = "Not run: the user moved on instead of answering whether this call may run."


_WithFiles = r.Result | r.FilesChanged
_WITH_FILES = frozenset({r.Result, r.FilesChanged})


def apply(state: AgentState, record: r.Record, *, with_files: bool = True) -> None:
    """Change `state` in place by one record.

    Args:
        state: of an agent.
        record: of that agent, or of one inside it.
        with_files: False where an agent above applies the record, and changes the files.

    """
    inner, kind = record, type(record)
    _APPLY[kind](state, record)
    while kind is r.ChildRecord:
        inner = inner.record  # type: ignore[union-attr]  # it is a ChildRecord
        kind = type(inner)
    if kind in _PROGRESS and state.run is not None:
        state.run.fruitless = 0
    if kind in _WITH_FILES and inner.files and with_files:  # type: ignore[union-attr]  # by its kind
        _change_files(state, record, cast("_WithFiles", inner))


def _change_files(state: AgentState, record: r.Record, inner: _WithFiles) -> None:
    """Change the files of the agent, or of the one above it with which it shares them."""
    owner = state
    while isinstance(record, r.ChildRecord):
        state, record = state.children[record.child], record.record
        if state.files is not None:
            owner = state
    if isinstance(inner, r.FilesChanged) and inner.own:
        state.files = changed(None, inner.files)
    else:
        owner.files = changed(owner.files, inner.files)


def _files_changed(state: AgentState, record: r.FilesChanged) -> None:
    if record.own:  # also where there are none
        state.files = {}


def replay(records: Iterable[r.Record], state: AgentState | None = None) -> AgentState:
    """The fold of an agent's records, from the first one on; or behind those that `state` is of."""
    state = AgentState() if state is None else state
    for record in records:
        apply(state, record)
    return state


def open_run(state: AgentState) -> RunState:
    """The run in progress.

    Raises:
        UsageError: if there is none, so the records do not fit together.

    """
    run = state.run
    if run is None or run.end is not None:
        raise UsageError("These records do not fit together: no run is in progress")
    return run


def open_turn(state: AgentState) -> Turn:
    turn = open_run(state).turn
    if turn is None:
        raise UsageError("These records do not fit together: no turn is open")
    return turn


def find_call(state: AgentState, key: str) -> Call:
    run = open_run(state)
    return _model_call(run, key).call if run.turn is None else run.turn.calls[key]


def _model_call(run: RunState, key: str) -> ModelCall:
    """The model call of the next turn, which waits from its first fact on."""
    if key != run.model_call_key:
        raise UsageError("These records do not fit together: no turn is open")
    if run.model_call is None:
        run.model_call = ModelCall(Call(key, ToolCallPart("", {}, tool_call_id="")))
    return run.model_call


def call_of_request(state: AgentState, request_id: str) -> Call:
    for call in open_run(state).calls:
        if request_id in call.requests:
            return call
    raise UsageError(f"These records do not fit together: there is no request {request_id!r}")


def _snapshot(state: AgentState, record: r.Snapshot) -> None:
    stored = AgentState.from_dict(record.state)
    for name in AgentState.__slots__:
        setattr(state, name, getattr(stored, name))


def _agent_created(state: AgentState, record: r.AgentCreated) -> None:
    state.merge(record.values)


def _imported(state: AgentState, record: r.Imported) -> None:
    if state.plans is not None:  # the original goes on with them
        schedules = state.plans.schedules
        paused = {id: replace(schedule, paused=True) for id, schedule in schedules.items()}
        _plan(state, schedules=paused)
    for each in state.tree:
        for key, doubt in each.doubts.items():
            each.doubts[key] = replace(doubt, token_hashes=())
        run = each.run
        if run is None or run.over:
            continue
        run.answers = None
        if run.turn is not None:
            run.turn.interrupts_checked = False
        for call in run.calls:
            if call.result is None:
                _reset_imported(each, call)


def _reset_imported(state: AgentState, call: Call) -> None:
    """Drop requests, decisions and tokens, which hold only where the agent was exported.

    A started call is in doubt. One that runs agents is not: they continue here.
    """
    if any(request.kind == "doubt" for request in call.requests.values()):
        call.running = True
    call.requests = call.decisions = call.notices = no_items()
    run = open_run(state)
    if run.model_call is None or run.model_call.call is not call:  # which is put off until its time
        for name, point in call.points.items():  # the tool runs again; its tokens hold here
            point = replace(point, token_hashes=(), reached_in=0)
            call.points = with_item(call.points, name, point)
    runs_agents = any(is_child_of(key, call.key) for key in state.children)
    call.copied_from = call.running and not runs_agents


def _status_noted(state: AgentState, record: r.StatusNoted) -> None:
    state.status = record.status


def _values_merged(state: AgentState, record: r.ValuesMerged) -> None:
    state.merge(record.delta)


def _quarantined(state: AgentState, record: r.Quarantined) -> None:
    open_run(state).quarantined = record.cause


def _released(state: AgentState, record: r.Released) -> None:
    run = open_run(state)
    run.quarantined, run.fruitless = None, 0


def _run_started(state: AgentState, record: r.RunStarted) -> None:
    before = state.run
    if before is not None and (before.costs or state.earlier_costs):
        lines = complete(before.costs, before.agent, before.usage.requests)
        state.earlier_costs = adding(state.earlier_costs, lines)
    state.run = RunState(
        run_id=record.run_id,
        agent=record.agent,
        until_tool=record.until_tool,
        require_tool_success=record.require_tool_success,
        forced=record.forced,
        max_runs=record.max_runs,
        early_stopping=record.early_stopping,
        fingerprint=record.fingerprint,
        deps_given=record.deps_given,
        pause_when_given=record.pause_when_given,
        agent_id=record.agent_id,
        deadline=record.deadline,
        max_overrides=record.max_overrides,
        first_message=len(state.messages),
        shared=Shared(inherited=len(state.messages)) if record.shares else None,
        contents=record.contents,
        workflow=record.workflow,
        progress=Progress() if record.workflow is not None else None,
        ends_at=record.ends_at,
        occurrence=record.occurrence,
        context=record.context or no_items(),
        told=record.told,
        began=record.at,
    )
    for message in record.initial:
        state.messages = state.messages.appending(message)
    if record.values:
        state.merge(record.values)
    if record.message is not None:
        state.messages = state.messages.appending(record.message)
    _dequeue(state, record.message_ids)


def _dequeue(state: AgentState, message_ids: tuple[str, ...]) -> None:
    for message_id in message_ids:
        queued = state.queue.pop(message_id, None)
        # The ids of occurrences are not kept: their schedule knows which have come.
        if queued is None or queued.occurrence is None:
            run_id = open_run(state).run_id
            state.message_ids = with_item(state.message_ids, message_id, run_id)


def _message_queued(state: AgentState, record: r.MessageQueued) -> None:
    queued = QueuedMessage(
        record.message_id,
        record.message,
        record.steer,
        record.self_sent,
        record.due,
        context=record.context,
    )
    if record.due is None:
        state.queue = with_item(state.queue, record.message_id, queued)
    else:
        timed = state.plans.timed if state.plans is not None else {}
        _plan(state, timed={**timed, record.message_id: queued})
    state.message_ids = with_item(state.message_ids, record.message_id, None)


def _plan(state: AgentState, **changes: Any) -> None:
    plans = replace(state.plans or NO_PLANS, **changes)
    state.plans = None if plans == NO_PLANS else plans


def _without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {other: value for other, value in mapping.items() if other != key}


def _message_due(state: AgentState, record: r.MessageDue) -> None:
    timed = (state.plans or NO_PLANS).timed
    # A run that it starts is none that the agent started by itself: time has passed.
    queued = replace(timed[record.message_id], self_sent=False)
    state.queue = with_item(state.queue, record.message_id, queued)
    _plan(state, timed=_without(timed, record.message_id))


def _message_cancelled(state: AgentState, record: r.MessageCancelled) -> None:
    state.queue.pop(record.message_id, None)
    state.message_ids.pop(record.message_id, None)
    if state.plans is not None and record.message_id in state.plans.timed:
        _plan(state, timed=_without(state.plans.timed, record.message_id))


def _pause_requested(state: AgentState, record: r.PauseRequested) -> None:
    _plan(state, pause=record.reason)


def _schedule_set(state: AgentState, record: r.ScheduleSet) -> None:
    schedules = (state.plans or NO_PLANS).schedules
    _plan(state, schedules={**schedules, record.schedule.id: record.schedule})


def _schedule_removed(state: AgentState, record: r.ScheduleRemoved) -> None:
    id = record.schedule_id
    _plan(state, schedules=_without((state.plans or NO_PLANS).schedules, id))
    for message_id, queued in list(state.queue.items()):
        if queued.occurrence is not None and queued.occurrence.schedule_id == id:
            del state.queue[message_id]


def _occurred(state: AgentState, record: r.Occurred) -> None:
    occurrence = record.occurrence
    schedules = (state.plans or NO_PLANS).schedules
    before = schedules[occurrence.schedule_id]
    next_due = before.next_due if occurrence.triggered else record.next_due
    after = replace(before, next_due=next_due, latest=occurrence)
    _plan(state, schedules={**schedules, before.id: after})
    if occurrence.skipped is None:
        queued = QueuedMessage(
            record.message_id,
            before.message,
            steer=False,
            self_sent=False,
            occurrence=occurrence,
            context=before.context,
        )
        state.queue = with_item(state.queue, record.message_id, queued)


def _cancel_requested(state: AgentState, record: r.CancelRequested) -> None:
    open_run(state).cancelled = record.signal


def _signalled(state: AgentState, record: r.Signalled) -> None:
    run = open_run(state)
    run.signals = with_added(run.signals, record)


def _override(state: AgentState, record: r.Override) -> None:
    run = open_run(state)
    run.overrides = with_added(run.overrides, record)


def _early_stop_begun(state: AgentState, record: r.EarlyStopBegun) -> None:
    open_run(state).early_stop = record.turn
    state.messages = state.messages.appending(record.message)


def _time_spent(state: AgentState, record: r.TimeSpent) -> None:
    open_run(state).seconds = record.seconds


def _attempt(state: AgentState, record: r.Attempt) -> None:
    run = open_run(state)
    run.attempts = record.number
    run.fruitless += 1
    run.host = record.host
    if record.trace is not None:
        run.trace = record.trace


def _attempt_closed(state: AgentState, _: r.AttemptClosed) -> None:
    run = open_run(state)
    run.fruitless = max(0, run.fruitless - 1)


def _user_message(state: AgentState, record: r.UserMessage) -> None:
    shares = state.run is not None and state.run.shared is not None
    message = from_user(record.message) if shares else record.message
    state.messages = state.messages.appending(message)
    _dequeue(state, record.message_ids)


def _hooks_ran(state: AgentState, record: r.HooksRan) -> None:
    open_run(state).hooks_ran = True


def _reply(state: AgentState, record: r.Reply) -> None:
    run = open_run(state)
    response = record.response
    turn = Turn(record.turn, response, cut=record.cut, broken=record.broken)
    prefix = f"{run.run_id}.{record.turn}."
    for part in response.tool_calls:
        key = prefix + str(len(turn.calls))
        turn.calls[key] = Call(key, part)
    run.turn = turn
    run.turns = record.turn + 1
    waited, run.model_call = run.model_call, None
    if waited is None or waited.held is None:
        _count_reply(run, response)
    state.messages = state.messages.appending(response)


def _count_reply(run: RunState, response: ModelResponse) -> None:
    run.model_calls += 1
    _count_usage(run, response)


def _count_usage(run: RunState, response: ModelResponse) -> None:
    """Count what a reply used, and what those used that were rejected before it."""
    _count_request(run, response.model_name, response.usage)
    for attempt in response.failed_attempts or ():
        if attempt.usage is not None:
            _count_request(run, attempt.model_name, attempt.usage)


def _count_request(run: RunState, model: str | None, usage: RequestUsage) -> None:
    run.usage.incr(usage)
    run.usage.requests += 1
    if is_priced(usage):
        run.costs = adding(run.costs, [line_of(run.agent, model, usage)])


def _reply_held(state: AgentState, record: r.ReplyHeld) -> None:
    run = open_run(state)
    _model_call(run, run.model_call_key).held = record.response
    _count_reply(run, record.response)


def _pause_checked(state: AgentState, record: r.PauseChecked) -> None:
    open_turn(state).pause_checked = True


def _paused(state: AgentState, record: r.Paused) -> None:
    open_run(state).paused = record.reason
    open_turn(state).pause_checked = True


def _unpaused(state: AgentState, record: r.Unpaused) -> None:
    open_run(state).paused = None


def _requested(state: AgentState, record: r.Requested) -> None:
    call = find_call(state, record.request.call_key)
    for replaced in record.replaces:
        call.drop_request(replaced)
        call.decisions.pop(replaced, None)
    call.requests = with_item(call.requests, record.request.id, record.request)
    call.running = False
    run = open_run(state)
    if record.request.question_key and run.answers is not None:  # it is asked again
        run.answers = _without(run.answers, _answer_key(record.request))


def _interrupts_checked(state: AgentState, record: r.InterruptsChecked) -> None:
    open_turn(state).interrupts_checked = True
    for request in record.requests:
        call = find_call(state, request.call_key)
        call.requests = with_item(call.requests, request.id, request)
    for decided in record.decided:
        _decided(state, decided)


def _reminded(state: AgentState, record: r.Reminded) -> None:
    call = call_of_request(state, record.request_id)
    before = call.notices.get(record.request_id, NO_NOTICES)
    call.notices = with_item(
        call.notices, record.request_id, replace(before, reminders=record.number)
    )


def _escalated(state: AgentState, record: r.Escalated) -> None:
    call = call_of_request(state, record.request_id)
    before = call.notices.get(record.request_id, NO_NOTICES)
    call.notices = with_item(
        call.notices, record.request_id, replace(before, escalations=record.number)
    )


def _decided(state: AgentState, record: r.Decided) -> None:
    halt = open_run(state).halt
    if halt is not None and halt.id == record.request_id:
        open_run(state).dismissed = True
        decided = DecisionRecord(
            request=halt, decision=record.decision, at=record.at, context=record.context
        )
        state.decisions = with_added(state.decisions, decided)
        return
    call = call_of_request(state, record.request_id)
    request, decision = call.requests[record.request_id], record.decision
    call.decisions = with_item(call.decisions, record.request_id, decision)
    if request.question_key:
        _answered(open_run(state), request, decision)
    decided = DecisionRecord(
        request=request,
        decision=decision,
        at=record.at,
        sticky=record.sticky,
        context=record.context,
    )
    state.decisions = with_added(state.decisions, decided)
    if decision.always and not record.sticky:
        sticky = Sticky(
            agent_id=request.agent_id,
            source=request.source,
            tool_name=request.tool_name,
            fingerprint=request.fingerprint,
            decision=decision,
            at=record.at,
            request_id=request.id,
        )
        state.sticky = with_item(state.sticky, request.tool_name, sticky)


def _answered(run: RunState, request: Request, decision: Decision) -> None:
    key = _answer_key(request)
    run.answers = {**(run.answers or {}), key: decision}  # copies of the state share it


def _answer_key(request: Request) -> str:
    return own_key(request.source, request.question_key)


def _revoked(state: AgentState, record: r.Revoked) -> None:
    state.sticky.pop(record.tool_name, None)
    agent, _, inner = record.tool_name.partition("/")
    for child in state.children.values() if inner else ():
        if child.run is not None and child.run.agent == agent:
            _revoked(child, r.Revoked(tool_name=inner))


def _started(state: AgentState, record: r.Started) -> None:
    call = find_call(state, record.call_key)
    call.attempts, call.running, call.idempotent = record.attempt, True, record.idempotent


def _result(state: AgentState, record: r.Result) -> None:
    call = find_call(state, record.call_key)
    call.result, call.running = record, False
    if record.halt is not None:
        open_run(state).halt = record.halt
    if state.children:
        _end_children(state, call.key)
    if record.signal is not None:
        run = open_run(state)
        signalled = r.Signalled(turn=run.turns, signal=record.signal)
        run.signals = with_added(run.signals, signalled)
    for request in call.pending_requests:  # a late result answers a request about the doubt
        call.drop_request(request.id)
    if record.doubt is not None:
        state.doubts = with_item(state.doubts, call.key, doubtful_call(call, record.doubt))
    elif record.part.outcome == "success":
        open_run(state).usage.tool_calls += 1


def _end_children(state: AgentState, call_key: str) -> None:
    """End the agents that the call ran; their usage, decisions and doubts are kept."""
    for key in [key for key in state.children if is_child_of(key, call_key)]:
        child = state.children.pop(key)
        if child.run is None:
            continue
        usage = child.run.usage
        if not child.run.over:
            _run_ended(child, r.RunEnded(end=r.End(outcome="withdrawn"), at=_UNREAD))
        run = open_run(state)
        run.usage.incr(usage)
        run.costs = adding(run.costs, below(run.agent, child.run.costs))
        add_decisions_and_doubts(state, child)


def _suspended(state: AgentState, record: r.Suspended) -> None:
    find_call(state, record.call_key).running = False


def _point_reached(state: AgentState, record: r.PointReached) -> None:
    call = find_call(state, record.call_key)
    point = call.points.get(record.name)
    run = open_run(state)
    if run.turn is None:  # the model call is put off, once more if it was before
        call.attempts += 1
        point = None
        if record.used is not None:
            run.usage.incr(record.used)
            run.costs = adding(run.costs, record.costs)
    if point is None:
        point = Point(name=record.name, kind=record.what, since=record.at, due=record.due)
    elif point.since is None:
        point = replace(point, since=record.at, due=record.due)
    call.points = with_item(call.points, record.name, replace(point, reached_in=call.attempts))
    if record.suspends:
        call.running = False


def _token_made(state: AgentState, record: r.TokenMade) -> None:
    call = find_call(state, record.call_key)
    point = call.points.get(record.name)
    if point is None:
        point = Point(name=record.name, kind="wait", since=None)
    hashes = (*point.token_hashes, record.token_hash)
    call.points = with_item(call.points, record.name, replace(point, token_hashes=hashes))


def _point_answered(state: AgentState, record: r.PointAnswered) -> None:
    call = find_call(state, record.call_key)
    answer = PointAnswer(how=record.how, value=record.value, reason=record.reason, at=record.at)
    point = call.points.get(record.name) or Point(name=record.name, kind=record.what, since=None)
    reached_in = 0 if call.running else point.reached_in  # the attempt that came to it may go on
    call.points = with_item(
        call.points, record.name, replace(point, answer=answer, reached_in=reached_in)
    )


def _child_record(state: AgentState, record: r.ChildRecord) -> None:
    child = state.children.get(record.child)
    if child is None:
        child = new_child(state, record)
        state.children = with_item(state.children, record.child, child)
    apply(child, record.record, with_files=False)
    run = child.run
    if run is None:
        return
    if run.halt is not None:  # a halt holds for all agents above, too
        open_run(state).halt = run.halt
    inner = record.record
    while isinstance(inner, r.ChildRecord):
        inner = inner.record
    if isinstance(inner, r.UserMessage):  # it may have been in the queue of this agent
        _dequeue(state, inner.message_ids)


def doubtful_call(call: Call, reason: str) -> DoubtfulCall:
    """A call in doubt, as shown to the person who decides about the next call of the tool."""
    return DoubtfulCall(
        call_key=call.key,
        tool_name=call.part.tool_name,
        tool_call_id=call.part.tool_call_id,
        arguments=_last_arguments(call),
        reason=reason,
        token_hashes=tuple(
            each
            for point in call.points.values()
            if point.answer is None or point.answer.how == "expired"
            for each in point.token_hashes
        ),
    )


def _last_arguments(call: Call) -> dict[str, Any]:
    """Those of the latest decision or request, otherwise the model's."""
    for request in reversed(call.requests.values()):
        decision = call.decisions.get(request.id)
        if decision is not None and decision.arguments is not None:
            return decision.arguments
        return request.arguments
    return call.part.args_as_dict()


def _settled(state: AgentState, record: r.Settled) -> None:
    for each in state.tree:
        each.doubts.pop(record.call_key, None)
    if record.token_hash is None or record.answer is None:
        return
    for call in open_calls(state):  # where its turn is over, only the records tell of it
        for point in list(call.points.values()) if call.key == record.call_key else ():
            if record.token_hash in point.token_hashes:
                answer = PointAnswer(
                    how=record.answer,
                    value=record.value,
                    reason=record.reason,
                    at=record.at or _UNREAD,
                )
                call.points = with_item(call.points, point.name, replace(point, answer=answer))


def _propagated(state: AgentState, record: r.Propagated) -> None:
    run = open_run(state)
    turn = run.turn if run.turn is not None else open_turn(state)
    parts: list[ModelRequestPart] = []
    prompts: list[ModelRequestPart] = []
    for call in turn.calls.values():
        result = call.result
        assert result is not None, f"propagated without a result of {call.key}"
        parts.append(result.part)
        if result.user_prompt is not None:
            prompts.append(result.user_prompt)
        if result.part.outcome == "success":
            run.tool_errors = 0
        elif result.part.outcome == "failed":
            run.tool_errors += 1
        if result.state is not None:
            state.merge(result.state)
        if result.escalate:
            run.escalated = True
    turn.propagated = True
    parts += prompts
    state.messages = state.messages.appending(ModelRequest(parts=parts, timestamp=record.at))


def _prompts(turn: Turn) -> list[UserPromptPart]:
    """What the tools of the turn give the model beside their results."""
    return [
        call.result.user_prompt
        for call in turn.calls.values()
        if call.result is not None and call.result.user_prompt is not None
    ]


def _turn_closed(state: AgentState, record: r.TurnClosed) -> None:
    run, turn = open_run(state), open_turn(state)
    if record.end is not None:
        run.closing = record.end
        if record.end.tool_call is not None:
            call = turn.calls[record.end.tool_call]
            assert call.result is not None, f"the run ends by {call.key}, which has no result"
            run.ended_by = {call.key: call.result}
            run.ended_call = call.part
        _put_output(state, record.end)
    if record.message is not None:
        state.messages = state.messages.appending(record.message)
    run.turn = None


def _put_output(state: AgentState, end: r.End) -> None:
    if end.output_key is not None:
        state.put({end.output_key: end.output if end.has_output else end.text})


def _sub_run_ended(state: AgentState, record: r.SubRunEnded) -> None:
    child = state.children.pop(record.child)
    add_result(open_run(state), child, record)
    merge_child(state, child)


def _history_replaced(state: AgentState, record: r.HistoryReplaced) -> None:
    run = state.run
    if run is not None:
        run.first_message = 0
        if run.shared is not None:  # the workflow's conversation gets the original messages
            run.shared.said += state.messages[run.shared.inherited :]
            run.shared.inherited = len(record.messages)
    state.messages = Messages(record.messages)


def _once(state: AgentState, record: r.Once) -> None:
    run = open_run(state)
    run.once = with_item(run.once, record.key, record.value)


def _model_asked(state: AgentState, record: r.ModelAsked) -> None:
    run = open_run(state)
    run.once = with_item(run.once, asked_key(record.key), record.value)
    _count_usage(run, record.response)


def _model_gave_no_answer(state: AgentState, record: r.ModelGaveNoAnswer) -> None:
    _count_usage(open_run(state), record.response)


def _withdrawn(state: AgentState, record: r.Withdrawn) -> None:
    for request_id in record.request_ids:
        call = call_of_request(state, request_id)
        request = call.drop_request(request_id)
        if request.question_key:
            moved_on = Decision(type="reject", message=MOVED_ON)
            _answered(open_run(state), request, moved_on)
        if request.kind == "doubt":
            call.running = True  # it was started, and its outcome is still unknown
        else:
            call.withdrawn = True


def _run_ended(state: AgentState, record: r.RunEnded) -> None:
    run = open_run(state)
    turn = run.turn
    run.model_call = None
    if turn is not None:
        if turn.calls and not turn.propagated:
            parts: list[ModelRequestPart] = []
            parts += [_closing_part(state, call, record) for call in turn.calls.values()]
            parts += _prompts(turn)
            for call in turn.calls.values():
                _end_children(state, call.key)
                if call.result is not None and call.result.state is not None:
                    state.merge(call.result.state)
            message = ModelRequest(parts=parts, timestamp=record.at)
            state.messages = state.messages.appending(message)
        run.turn = None
    for key, child in state.agents.items():
        assert child.run is not None, "agents are children with a run"
        if not child.run.over:
            _run_ended(child, r.RunEnded(end=r.End(outcome="withdrawn"), at=record.at))
        del state.children[key]
        merge_child(state, child)
    run.end = record.end
    run.paused = None


def _closing_part(state: AgentState, call: Call, record: r.RunEnded) -> ToolReturnPart:
    """The result part of a call that the end of the run finds open, or its own result."""
    if call.result is not None:
        return call.result.part
    inside = any(is_child_of(key, call.key) for key in state.children)
    if inside and (call.idempotent or not call.running):
        content, moved_on = _why_child_stopped(state, call), False
    elif call.running:
        reason = "the run ended before it answered"
        state.doubts = with_item(state.doubts, call.key, doubtful_call(call, reason))
        content, moved_on = IN_DOUBT.format(reason=reason), False
    else:
        moved_on = call.withdrawn
        content = MOVED_ON if moved_on else WAITED if call.points else NOT_RUN
    return ToolReturnPart(
        tool_name=call.part.tool_name,
        content=content,
        tool_call_id=call.part.tool_call_id,
        timestamp=record.at,
        outcome="denied" if moved_on else "interrupted",
    )


def _why_child_stopped(state: AgentState, call: Call) -> str:
    """What the model learns of a call whose agent did not finish; with a halt that it raised."""
    halt = open_run(state).halt
    if halt is not None:
        for key in state.children:
            inside = halt.run_id == key or halt.run_id.startswith(key + ".")
            if is_child_of(key, call.key) and inside:
                return f"The agent that this call ran halted the run: {halt.payload}"
    return CHILD_STOPPED


# A run that records one of these has got further: an attempt records none of them again that an
# earlier one has recorded. So a run that only repeats itself is quarantined in the end.
_PROGRESS = frozenset(
    {
        r.HooksRan,
        r.Reply,
        r.ReplyHeld,
        r.Once,
        r.ModelAsked,
        r.PauseChecked,
        r.InterruptsChecked,
        r.Result,
        r.Decided,
        r.PointReached,
        r.PointAnswered,
        r.Propagated,
        r.TurnClosed,
        r.SubRunEnded,
    }
)

_APPLY: dict[type[r.Record], Callable[[AgentState, Any], None]] = {
    r.Snapshot: _snapshot,
    r.AgentCreated: _agent_created,
    r.Imported: _imported,
    r.StatusNoted: _status_noted,
    r.ValuesMerged: _values_merged,
    r.Quarantined: _quarantined,
    r.Released: _released,
    r.RunStarted: _run_started,
    r.Attempt: _attempt,
    r.AttemptClosed: _attempt_closed,
    r.UserMessage: _user_message,
    r.MessageQueued: _message_queued,
    r.MessageDue: _message_due,
    r.MessageCancelled: _message_cancelled,
    r.PauseRequested: _pause_requested,
    r.ScheduleSet: _schedule_set,
    r.ScheduleRemoved: _schedule_removed,
    r.Occurred: _occurred,
    r.CancelRequested: _cancel_requested,
    r.Signalled: _signalled,
    r.Override: _override,
    r.EarlyStopBegun: _early_stop_begun,
    r.TimeSpent: _time_spent,
    r.HooksRan: _hooks_ran,
    r.Reply: _reply,
    r.ReplyHeld: _reply_held,
    r.PauseChecked: _pause_checked,
    r.Paused: _paused,
    r.Unpaused: _unpaused,
    r.Requested: _requested,
    r.InterruptsChecked: _interrupts_checked,
    r.Reminded: _reminded,
    r.Escalated: _escalated,
    r.Decided: _decided,
    r.Revoked: _revoked,
    r.Started: _started,
    r.Result: _result,
    r.FilesChanged: _files_changed,
    r.Suspended: _suspended,
    r.PointReached: _point_reached,
    r.TokenMade: _token_made,
    r.PointAnswered: _point_answered,
    r.ChildRecord: _child_record,
    r.Settled: _settled,
    r.Propagated: _propagated,
    r.TurnClosed: _turn_closed,
    r.SubRunEnded: _sub_run_ended,
    r.HistoryReplaced: _history_replaced,
    r.Once: _once,
    r.ModelAsked: _model_asked,
    r.ModelGaveNoAnswer: _model_gave_no_answer,
    r.Withdrawn: _withdrawn,
    r.RunEnded: _run_ended,
}
