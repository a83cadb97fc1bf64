"""`HumanInTheLoop`: a person decides whether a tool call runs.

It only makes the requests. The pipeline carries decisions out, the same way for each middleware
that makes requests. It owns requests of kind `approval`. A gate is never silently off: an option
that could not work is an error when the agent is made.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from typing import Any

from understudy._base.error_texts import error_text
from understudy._base.json_values import checked_json, storable_text
from understudy._base.request_timing import EscalateAfter, OnExpiry, Seconds, request_timing
from understudy.approvals import Approval
from understudy.errors import UsageError
from understudy.interrupts import Request
from understudy.middleware.base import Middleware
from understudy.models.requirements import native_names
from understudy.run.definition import AgentDefinition, Gate, covers
from understudy.run.run import Run, log_fields
from understudy.run.tool_call import ToolCall
from understudy.tools import Tool
from understudy.tools.gate_rule import GateRule, Rule, check_title, checked_rule

logger: logging.Logger = logging.getLogger(__name__)


class HumanInTheLoop(Middleware, Gate):
    """A middleware that requests a person's decision before the named tools run.

    Args:
        rules: a rule for each tool, by its name. `True` allows the decisions approve, edit,
            reject and respond. A list has the allowed decisions. `False` makes no request. A
            dict has options: `{"allowed": [...], "when": fn, "display": fn}`. `when(arguments,
            ctx)` returns whether this call needs a decision; if it raises, the call needs one.
            `display(arguments, ctx)` returns a text or a dict to show in addition to the
            arguments. Both may be async. `"approval"` says which persons must agree: see
            `understudy.trust.approval`. `"grant"` says how far a decision may hold for later
            calls: the result of `understudy.trust.offer`, True for any grant, or False; by
            default any grant, and none with `"approval"`. The dict may also hold the four
            options below, in place of the options for all tools.
        remind_after: seconds after which the person is reminded of an unanswered request; one
            number or several.
        escalate_after: the other people to notify of it, by the seconds after which they are
            notified.
        expires_after: seconds, or a timedelta, after which it expires; None = never.
        on_expiry: the effect of an expired request: `"reject"` rejects its call, `"stop"` stops
            the whole run. Silence never approves.

    Raises:
        UsageError: if a decision list is empty, a decision, option or tool is unknown, or a
            time is not possible.

    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        *,
        remind_after: Seconds | Sequence[Seconds] = (),
        escalate_after: EscalateAfter | None = None,
        expires_after: Seconds | None = None,
        on_expiry: OnExpiry = "reject",
    ) -> None:
        if not isinstance(rules, Mapping):
            raise UsageError(
                f"HumanInTheLoop: `rules` must be a mapping of tool names to rules, got {rules!r}"
            )
        options = {
            "remind_after": remind_after,
            "escalate_after": escalate_after,
            "expires_after": expires_after,
            "on_expiry": on_expiry,
        }
        timing = request_timing("HumanInTheLoop", **options)
        self._gates: dict[str, GateRule | None] = {
            name: checked_rule(rule, options, timing, what=f"HumanInTheLoop({{{name!r}: ...}})")
            for name, rule in rules.items()
        }

    def covers(self, tool_name: str) -> bool | None:
        """Return whether the tool is gated; None if no rule names it.

        The rules apply to the agents below too.
        """
        return None if tool_name not in self._gates else self._gates[tool_name] is not None

    def rule_of(self, tool_name: str) -> GateRule | None:
        """Return the rule for calls of the tool; None if no rule asks about them."""
        return self._gates.get(tool_name)

    def asks_several(self, tool: Tool) -> bool:
        gates = (self._gates.get(name) for name in tool.names)
        return any(gate is not None and gate.approval is not None for gate in gates)

    def approvals(self) -> Mapping[str, Approval]:
        gates = self._gates.items()
        return {
            name: gate.approval
            for name, gate in gates
            if gate is not None and gate.approval is not None
        }

    def check(self, definition: AgentDefinition) -> None:
        below = _tools_below(definition)
        native = _native_tools_of(definition)
        for name, gate in self._gates.items():
            tool = definition.tool_of(name)
            if gate is not None and tool is not None:
                what = f"HumanInTheLoop({{{name!r}: ...}})"
                check_title(gate, tool.name, tool.parameters, what=what)
            if tool is not None or name in below:
                continue
            if name in native:
                raise UsageError(
                    f"HumanInTheLoop names {name!r}, a native tool: its provider runs it before "
                    "the reply comes, so nobody can approve it. Leave it out of `native_tools`, or "
                    "give the agent a tool of yours that does the same"
                )
            known = ", ".join(repr(tool) for tool in definition.tools) or "none"
            inside = ", ".join(repr(tool) for tool in sorted(below.difference(definition.tools)))
            near = get_close_matches(name, {*definition.tools, *below}, n=1)
            raise UsageError(
                f"HumanInTheLoop gates {name!r}, but agent {definition.name!r} has no such tool"
                + (f" (did you mean {near[0]!r}?)" if near else "")
                + f"; it has: {known}"
                + (f"; the agents inside it have: {inside}" if inside else "")
            )

    async def check_tool_calls(self, run: Run, calls: Sequence[ToolCall]) -> Sequence[Request]:
        requests = []
        for call in calls:
            gate = next((self._gates[n] for n in call.tool.names if n in self._gates), None)
            if gate is not None and await _needs_person(gate, call):
                display = await _displayed(gate, call)
                requests.append(
                    call.request(
                        allowed=gate.allowed,
                        display=display,
                        title=gate.title or None,
                        timing=gate.timing,
                        approval=gate.approval,
                        grant=gate.offer or False,
                    )
                )
        return requests


class GatesOfTools(HumanInTheLoop):
    """The gates that tools ask for themselves, by their option `ask`.

    If a `HumanInTheLoop` of the agent, or of an agent above, names the tool, it decides instead.
    """

    name: str = HumanInTheLoop.__name__  # a grant holds for both kinds of gate

    def __init__(self, rules: Mapping[str, GateRule]) -> None:
        super().__init__({})
        self._gates = {**rules}

    async def check_tool_calls(self, run: Run, calls: Sequence[ToolCall]) -> Sequence[Request]:
        gates = (*run.definition.gates, *run.gates)
        own = [c for c in calls if all(covers(gate, c.tool) is None for gate in gates)]
        return await super().check_tool_calls(run, own)


def _native_tools_of(definition: AgentDefinition) -> frozenset[str]:
    """The names of the native tools of this agent and of all agents that it may run."""
    names = native_names(definition.native_tools)
    for child in definition.children.values():
        names |= _native_tools_of(child.definition)
    return names


def _tools_below(definition: AgentDefinition) -> set[str]:
    """The names of the tools of all agents that this agent may run: a gate applies to them too."""
    names: set[str] = set()
    for child in definition.children.values():
        names |= {name for tool in child.definition.tools.values() for name in tool.names}
        names |= _tools_below(child.definition)
    return names


async def _needs_person(gate: GateRule, call: ToolCall) -> bool:
    if gate.when is None:
        return True
    try:
        answer = gate.when(deepcopy(call.arguments), call.context)
        return bool(await answer if inspect.isawaitable(answer) else answer)
    except Exception:
        logger.exception(
            "when() of the gate on %r raised: an approval is requested",
            call.tool_name,
            extra=log_fields(),
        )
        return True


async def _displayed(gate: GateRule, call: ToolCall) -> str | dict[str, Any] | None:
    if gate.display is None:
        return None
    try:
        shown = gate.display(deepcopy(call.arguments), call.context)
        shown = await shown if inspect.isawaitable(shown) else shown
        if isinstance(shown, dict):
            return checked_json(shown, what="display()", is_shown=True)
        return storable_text(shown if isinstance(shown, str) else str(shown))
    except Exception as error:
        logger.exception("display() of the gate on %r raised", call.tool_name, extra=log_fields())
        return f"(display() raised {error_text(error)})"
