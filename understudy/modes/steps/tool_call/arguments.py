"""A call before it runs: its arguments, and whether the decisions about it hold for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from understudy._base.json_values import digest
from understudy._base.quickly_made import quickly_made
from understudy.errors import UsageError
from understudy.interrupts import DECISION_TYPES, DoubtfulCall, Request
from understudy.modes.steps.tool_call.earlier_calls import earlier_calls
from understudy.modes.steps.tool_call.votes import AskedNow, with_requesters
from understudy.run.definition import AgentDefinition, Gate, covers
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall, binding, is_of_trust, make_context
from understudy.state.agent_state import AgentState
from understudy.state.folds.ends import UNKNOWN_BEFORE, doubtful_call
from understudy.state.records import Effect, Requested
from understudy.state.run_state import Call
from understudy.tools import InvalidArguments, Tool
from understudy.tools.made_arguments import left_out, with_value
from understudy.tools.tool_defaults import ToolDefaults

CRASHED = "it was cut off before its result was recorded"
CHANGED = "The call, or its tool, is not what was decided about."
"""The reason of a request that replaces a request whose decision does not hold any more."""
_STRICTNESS: tuple[Effect, ...] = ("read_only", "idempotent", "effects")


@quickly_made
@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A call that can run, with the validated arguments for its function."""

    call: Call
    tool: Tool
    checked: dict[str, Any]
    edited: dict[str, Any] | None = None
    """The canonical arguments, if a person replaced the model's."""
    made: dict[str, Any] | None = None
    """The arguments to record, where they are not as the model wrote them, and are in no record."""


def prepare(run: Run, call: Call) -> ReadyCall | str:
    """The call as it would run now, or the error text for the model."""
    name = call.part.tool_name
    tool = run.definition.tool_of(name)
    if tool is None:
        known = ", ".join(run.definition.tools) or "none"
        return f"Unknown tool {call.part.tool_name!r}. Available tools: {known}"
    try:
        if call.arguments is None:
            checked = tool.validate(call.part.args)
            made = tool.made(call.part.args, checked) if tool.makes_arguments else None
            return ReadyCall(call, tool, checked, made=made)
        checked = tool.revalidate(call.arguments)
        edited = tool.canonical(checked) if _is_edited(call) else None
        return ReadyCall(call, tool, checked, edited, tool.made(call.arguments, checked))
    except InvalidArguments as error:
        return f"Invalid arguments for {call.part.tool_name!r}:\n{error}"


def effect_of(run: Run, tool: Tool) -> Effect:
    """What it does to call this tool again, in this run.

    What `undeclared` says never covers a tool that a gate names, or that has a `check` or a `key`:
    somebody thinks that it has effects.
    """
    if tool.effect is not None:
        return tool.effect
    if (tool.undeclared or run.undeclared) != "read_only":
        return "effects"  # the common case, at no cost
    return declared_effect(tool, run.definition, run.gates, run.tool_defaults)


def declared_effect(
    tool: Tool, definition: AgentDefinition, above: Iterable[Gate], defaults: ToolDefaults
) -> Effect:
    """As `effect_of`, where the agent of this definition runs.

    Args:
        tool: a tool of the definition.
        definition: the agent.
        above: the gates of the agents above it.
        defaults: the defaults of the runtime.

    """
    if tool.effect is not None:
        return tool.effect
    undeclared = tool.undeclared or definition.tool_defaults.undeclared or defaults.undeclared
    if undeclared != "read_only" or tool.unknown_after or tool.is_known_to_have_effects:
        return "effects"
    return "effects" if names_tool((*definition.gates, *above), tool) else "read_only"


def _is_edited(call: Call) -> bool:
    return any(decision.type == "edit" for decision in call.decisions.values())


def canonical(ready: ReadyCall) -> dict[str, Any]:
    """The arguments that would run, in the form that a person is shown."""
    return ready.tool.canonical(ready.checked)


def as_tool_call(run: Run, ready: ReadyCall) -> ToolCall:
    """The call as middleware sees it."""
    return ToolCall(
        key=ready.call.key,
        tool=ready.tool,
        tool_call_id=ready.call.part.tool_call_id,
        arguments=canonical(ready),
        context=make_context(run, ready.call),
        run=run,
        call=ready.call,
    )


def answers_match(run: Run, call: Call, tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether every decision about this call was made for exactly this call, tool and arguments."""
    fingerprint = tool.fingerprint_as(call.part.tool_name)  # it may have had another name
    for request in call.requests.values():
        if request.question_key:
            continue  # the middleware that asked decides what an answer is for
        expected = binding(request, run=run, call=call, fingerprint=fingerprint)
        intact = (
            request.digest == expected
            and request.fingerprint == fingerprint
            and request.agent_id == run.agent_id
            and request.run_id == run.run_id
            and request.call_key == call.key
            and request.tool_name == call.part.tool_name
            and request.tool_call_id == call.part.tool_call_id
        )
        decision = call.decisions.get(request.id)
        decided = request.arguments
        if decision is not None and decision.edited is not None:
            try:
                decided = tool.canonical(tool.revalidate(_completed(decision.edited, arguments)))
            except InvalidArguments:
                return False
        if not intact or digest(decided) != digest(arguments):
            return False
    return True


def _completed(edited: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """What a person wrote, with what was made for the call where they left something out.

    It is complete already, unless only a tool knows the agent that made the call: its arguments are
    not known where the decision is recorded.
    """
    for path, value in left_out(edited, arguments):
        edited = with_value(edited, path, value)
    return edited


async def request_again(
    run: Run,
    ready: ReadyCall,
    which: Sequence[Request] | None = None,
    *,
    why: str | None = None,
    not_entered: bool = False,
) -> None:
    """Replace requests about a call by new ones, which show what would run now.

    Args:
        run: the run of the call.
        ready: the call.
        which: the requests to replace; None for all.
        why: the reason for asking once more; None if something else would run.
        not_entered: as in `Requested`.

    """
    call = as_tool_call(run, ready)
    for request in list(ready.call.requests.values() if which is None else which):
        if request.question_key:
            continue
        fresh = call.request_in_place_of(request, asked_again=why or CHANGED)
        [fresh] = await with_requesters(run, [fresh])
        again = with_earlier(run, ready, fresh)
        record_request(run, again, (request.id,), made=ready.made, not_entered=not_entered)


def doubts_about(run: Run, ready: ReadyCall) -> tuple[DoubtfulCall, ...]:
    """The calls in doubt because of which a person must decide about this one.

    These are the equal calls in the whole tree of agents: calls of the same tool with the same
    arguments, or with the same key. For a tool that a gate names, they are all calls of the tool.
    """
    root = run.root.state
    if not root.may_be_in_doubt:
        return ()  # the common case, at no cost
    call, tool = ready.call, ready.tool
    doubts = {
        doubt.call_key: doubt
        for state in root.tree_in_doubt
        for doubt in (*state.doubts.values(), *_doubts_to_come(run, state, call))
        if doubt.tool_name in tool.names or (tool.key is not None and _same_key(run, ready, doubt))
    }
    doubts.pop(call.key, None)
    if not doubts:
        return ()
    is_held_by_all = is_gated(run, tool)
    return tuple(
        _as_shown(run, doubt)
        for doubt in doubts.values()
        if is_held_by_all
        or doubt.tool_name not in tool.names
        or equals(ready, doubt.arguments)
        or _same_key(run, ready, doubt)
    )


def _as_shown(run: Run, doubt: DoubtfulCall) -> DoubtfulCall:
    """The doubt with its arguments in the form for a person, without secrets."""
    tool = run.definition.tool_of(doubt.tool_name)
    return doubt if tool is None else replace(doubt, arguments=_read_again(tool, doubt.arguments))


def _read_again(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Recorded arguments in the form that a person is shown.

    Arguments that do not fit the tool are returned as they are recorded: the tool has changed
    since, or a person has put in what it does not take.
    """
    with contextlib.suppress(InvalidArguments):
        return tool.canonical(tool.revalidate(arguments))
    return arguments


def _doubts_to_come(run: Run, state: AgentState, held: Call) -> Iterator[DoubtfulCall]:
    """The calls in doubt of an agent about which a person is asked, or which was just cut off.

    Calls that wait to be tried again count too, because an attempt left open what it did, unless
    the call that is to be `held` was started before.

    Race: after a crash the agents of the tree continue at the same time, and one may start an equal
    call before another agent has found its own call to be in doubt
    (`test_a_call_that_was_cut_off_deep_in_a_workflow_holds_an_equal_one_from_the_beginning`). Calls
    of one reply have no such race: all are looked at before any starts.
    """
    inside = state.run
    if inside is None:
        return
    for call in inside.open_calls:
        for request in call.pending_requests:
            if request.kind == "doubt" and not request.source:
                reason, since = request.payload["reason"], request.created_at
                yield doubtful_call(inside, call, reason, since)
        is_cut_off = call.running and call.key in run.root.cut_off
        if is_cut_off and state is not run.state and must_not_repeat(run, call):
            yield doubtful_call(inside, call, CRASHED, run.clock.now())
        elif call.was_unknown and call.result is None and call is not held and not held.attempts:
            # A call of the same reply may continue beside this call, as if nothing had been cut
            # off.
            if state is run.state and call.running:
                continue
            yield doubtful_call(inside, call, UNKNOWN_BEFORE, run.clock.now())


def effect_now(run: Run, call: Call) -> Effect:
    """The effect of running a call again that was started.

    It is the effect as declared then or as declared now, whichever allows less: a tool may be
    declared anew while a call is open.
    """
    tool = run.definition.tool_of(call.part.tool_name)
    now = call.effect if tool is None else effect_of(run, tool)
    return max(call.effect, now, key=_STRICTNESS.index)


def must_not_repeat(run: Run, call: Call) -> bool:
    """Whether the call does not run again by itself once it was cut off."""
    effect = effect_now(run, call)
    is_gone = run.definition.tool_of(call.part.tool_name) is None
    return effect == "effects" or (effect == "idempotent" and (is_gone or call.copied_from))


def _same_key(run: Run, ready: ReadyCall, doubt: DoubtfulCall) -> bool:
    """Whether a call in doubt has the key of this one, by what its tool says now.

    The store knows keys too, but not the key of an imported call, nor of a call that was started
    before its tool had a key.
    """
    tool, other = ready.tool, run.definition.tool_of(doubt.tool_name)
    if tool.key is None or other is None or other.key is None:
        return False
    with contextlib.suppress(InvalidArguments, UsageError):
        arguments = other.canonical(other.revalidate(doubt.arguments))
        return other.key.of(arguments, other.name) == tool.key.of(canonical(ready), tool.name)
    return False


def is_gated(run: Run, tool: Tool) -> bool:
    """Whether a gate names the tool: its own gate, or a gate of the agent or of an agent above."""
    return names_tool((*run.definition.gates, *run.gates), tool)


def names_tool(gates: Iterable[Gate], tool: Tool) -> bool:
    """Whether one of these gates names the tool, or its own does."""
    return tool.gate is not None or any(covers(gate, tool) for gate in gates)


def equals(ready: ReadyCall, arguments: dict[str, Any]) -> bool:
    """Whether a call has the arguments of another call of the same tool, as they are recorded."""
    return digest(_read_again(ready.tool, arguments)) == digest(canonical(ready))


def not_kept_before(run: Run, ready: ReadyCall) -> str | None:
    """The text that the model got for an equal call that ran and whose result could not be kept.

    None for a call that was entered already: to continue it is no repetition.
    """
    if ready.call.attempts:
        return None
    for each in run.current.not_kept.values():
        if each.tool_name in ready.tool.names and equals(ready, each.arguments):
            return each.text
    return None


def blocked_by_doubt(run: Run, ready: ReadyCall) -> bool:
    """Whether the call must wait because another call, such as an equal one, is in doubt.

    It waits unless an approval of the call showed that doubt. If it waits, a request is recorded.

    Race: a sibling may come into doubt after this call was approved, or after `check_interrupts`
    found nothing. So this is checked again when the call is about to start
    (`test_an_approved_sibling_of_the_same_tool_is_asked_about_again`,
    `test_a_sibling_that_waits_its_turn_needs_a_person_after_a_timeout`).
    """
    if not run.root.state.may_be_in_doubt:
        return False  # the common case, at no cost
    if ready.call.check is not None:
        return False  # it does not start: its check is asked
    doubts = doubts_about(run, ready)
    approvals = [r for r in ready.call.requests.values() if r.kind == "approval"]
    seen = {doubt.call_key for request in approvals for doubt in request.doubts}
    if all(doubt.call_key in seen for doubt in doubts):
        return False
    request_with_doubts(run, ready, doubts)
    return True


def request_with_doubts(run: Run, ready: ReadyCall, doubts: tuple[DoubtfulCall, ...]) -> None:
    """Record that a person must decide about a call despite these doubts, instead of approvals."""
    approvals = [r for r in ready.call.requests.values() if r.kind == "approval"]
    plain = [each for each in approvals if not is_of_trust(each)]
    call = as_tool_call(run, ready)
    # What several persons, or a rule, must agree to stays: each such request has its own place.
    for old in (each for each in approvals if is_of_trust(each)):
        request = with_earlier(run, ready, call.request_in_place_of(old, doubts=doubts))
        record_request(run, request, (old.id,), made=ready.made)
    if approvals and not plain:
        return
    first = plain[0] if plain else None
    request = call.request(
        allowed=first.allowed if first is not None else DECISION_TYPES,
        display=first.display if first is not None else None,
        timing=first.timing if first is not None else None,
        grant=False,  # beside a doubt a decision is about this call alone
        doubts=doubts,
    )
    request = with_earlier(run, ready, request)
    record_request(run, request, tuple(r.id for r in plain), made=ready.made)


def with_earlier(run: Run, ready: ReadyCall, request: Request) -> Request:
    """The request, with the equal calls made before, so that a person can see a repetition."""
    return replace(request, earlier=earlier_calls(run, ready.call, ready.tool, request.arguments))


def record_request(
    run: Run,
    request: Request,
    replaces: tuple[str, ...] = (),
    *,
    made: dict[str, Any] | None = None,
    not_entered: bool = False,
) -> None:
    """Record a request.

    Args:
        run: the run of the call.
        request: about the call.
        replaces: the ids of the requests that it replaces.
        made: the arguments that were made for the call, if no record has them yet.
        not_entered: as in `Requested`.

    """
    run.record(
        Requested(request=request, replaces=replaces, call_arguments=made, not_entered=not_entered)
    )


def record_asked_now(
    run: Run, ready: ReadyCall, asked: Sequence[AskedNow], *, not_entered: bool = False
) -> None:
    """Record what gates and rules of today ask in addition, with the votes that count for it.

    Args:
        run: the run of the call.
        ready: the call.
        asked: the additional questions.
        not_entered: as in `Requested`.

    """
    for each in asked:
        request = with_earlier(run, ready, each.request)
        record_request(run, request, each.replaces, made=ready.made, not_entered=not_entered)
        if each.votes:
            run.record(*each.votes_on())
