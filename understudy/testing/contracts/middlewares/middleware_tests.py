"""`MiddlewareTests`: the agent in which a middleware is judged, and its lives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import count
from typing import Any, ClassVar, Literal, get_args

from pydantic_ai.messages import ModelMessage

from understudy import (
    Agent,
    AgentState,
    Completed,
    Decision,
    Failed,
    Interrupted,
    Outcome,
    Request,
    ScriptedModel,
    SimulatedClock,
    Stopped,
    ToolContext,
    Waiting,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.errors import UsageError
from understudy.events import Event
from understudy.middleware import Middleware
from understudy.models.scripted_model import ScriptedRequest
from understudy.testing.contracts.contract import Contract
from understudy.testing.contracts.disk import Disk

Change = Literal["calls", "conversation", "outcome", "requests"]
"""What a middleware may change in a run: the tool calls that run, with arguments and results; the
stored conversation; the outcome of the run; and the requests to the model, and their number."""
MOST_ANSWERS = 50
"""The maximum number of answers in a run. A run that asks more often does not end."""
_SHOWN = ("part_kind", "content", "tool_name", "args", "outcome")


@dataclass
class Outside:
    """The effects of the agent's tools, and the requests to its model."""

    entered: list[tuple[str, str]] = field(default_factory=list)
    """The bodies that were entered, each as the tool and the key of the call."""
    requests: list[ScriptedRequest] = field(default_factory=list)

    def calls_of(self, tool_name: str) -> list[str]:
        """The keys of the calls of a tool, once for each entry into its body."""
        return [key for name, key in self.entered if name == tool_name]


@dataclass(kw_only=True)
class Life:
    """A run from its message to its end, with the answers of a person."""

    outcome: Outcome
    asked: list[Request]
    """The requests, in order."""

    @property
    def state(self) -> AgentState:
        return self.outcome.state

    @property
    def conversation(self) -> list[object]:
        """The stored conversation, without ids and times."""
        return shown(self.state.messages)

    @property
    def end(self) -> tuple[str, str]:
        """The end of the run: the kind of the outcome, and its text."""
        outcome = self.outcome
        text = outcome.text if isinstance(outcome, Completed) else ""
        if isinstance(outcome, Failed):
            text = str(outcome.error)
        return type(outcome).__name__, text


class MiddlewareTests(Contract):
    """Tests of a middleware in an agent that looks, notes and pays."""

    _required: ClassVar[tuple[str, ...]] = ("new_middleware",)
    changes: ClassVar[Collection[str]] = ()
    """The things that the middleware is there to change, each a `Change`. Everything else must be
    the same with it and without it."""
    prompt: ClassVar[str] = "Do it, please."
    picklable: ClassVar[bool] = False
    """Whether the middleware must be picklable."""

    def setup_method(self) -> None:
        super().setup_method()
        unknown = sorted(set(self.changes) - set(get_args(Change)))
        if unknown:
            known = ", ".join(map(repr, get_args(Change)))
            raise UsageError(f"`changes` must be of {known}, and has {unknown[0]!r}")

    def new_middleware(self) -> Middleware:
        """A new middleware with its options, as each process makes it. Override it."""
        raise self._missing("new_middleware")

    def reply(self, request: ScriptedRequest) -> object:
        """The model's reply, as `ScriptedModel` takes it.

        It depends only on the request, so that a run that was cut off gets the same replies. By
        default it calls `look` and `note`, then `pay`, and says that all is done.
        """
        done = len(request.results)
        if done == 0:
            return [call("look", {"at": "17"}), call("note", {"text": "seen"})]
        if done == 2:
            return call("pay", {"order": "17"})
        return "All is done."

    def tools(self, outside: Outside) -> Sequence[Any]:
        """The tools of the agent: `look` is read-only, `note` idempotent, `pay` neither."""

        @tool(read_only=True)
        async def look(ctx: ToolContext, at: str) -> str:
            """Look at an order."""
            outside.entered.append(("look", ctx.call_key))
            return f"order {at} is open"

        @tool(idempotent=True)
        async def note(ctx: ToolContext, text: str) -> str:
            """Note something."""
            outside.entered.append(("note", ctx.call_key))
            return f"noted: {text}"

        @tool
        async def pay(ctx: ToolContext, order: str) -> str:
            """Pay an order."""
            outside.entered.append(("pay", ctx.call_key))
            return f"paid {order}"

        return [look, note, pay]

    def answer(self, request: Request) -> Decision:
        """A person's answer to a request. By default it approves, or else says "yes"."""
        return approve() if "approve" in request.allowed else respond("yes")

    def effects(self) -> Sequence[str]:
        """The effects of the middleware outside of the run in this test, such as a mail that it
        sent.

        By default there are none. Each effect must happen once in a run.
        """
        return ()

    def clock(self) -> SimulatedClock:
        """A clock that stands still until a wait is over."""
        return SimulatedClock(datetime(2030, 1, 1, 12, tzinfo=timezone.utc))

    def _decided(self, requests: Sequence[Request]) -> dict[str, Decision]:
        """A person's answer to each request. A call in doubt is not made again."""
        return {
            each.id: reject("it may be done")
            if each.kind == "doubt" or each.doubts
            else self.answer(each)
            for each in requests
        }

    # ------------------------------------------------------------------- lives

    def new_agent(
        self,
        stack: Sequence[Middleware],
        outside: Outside,
        reply: Callable[[ScriptedRequest], object] | None = None,
        *,
        more: Sequence[Any] = (),
    ) -> Agent:
        """An agent with this stack of middleware, and tools in addition to `tools`."""
        says = reply or self.reply

        def noted(request: ScriptedRequest) -> object:
            outside.requests.append(request)
            return says(request)

        tools = [*self.tools(outside), *more]
        return Agent("judged", ScriptedModel(noted), tools=tools, middleware=list(stack))

    async def _live(
        self, agent: Agent, disk: Disk | None = None, *, prompt: str | None = None
    ) -> Life:
        """Live a run with a message until it is over."""
        clock, numbers = self.clock(), count(1)
        outcome = await agent.execute(
            self.prompt if prompt is None else prompt,
            journal=disk,
            clock=clock,
            new_id=lambda: f"id{next(numbers)}",
        )
        return await self._to_the_end(agent, outcome, clock, disk)

    async def _live_on(self, agent: Agent, state: AgentState, disk: Disk | None = None) -> Life:
        """Live a run that was cut off until it is over."""
        clock = self.clock()
        outcome = await agent.resume(state, journal=disk, clock=clock)
        return await self._to_the_end(agent, outcome, clock, disk)

    async def _to_the_end(
        self,
        agent: Agent,
        outcome: Outcome,
        clock: SimulatedClock,
        disk: Disk | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
    ) -> Life:
        """Answer requests, and let the time of waits pass, until the run is over."""
        asked: list[Request] = []
        for _ in range(MOST_ANSWERS):
            decisions: Mapping[str, Decision] | None = None
            if isinstance(outcome, (Completed, Failed, Stopped)):
                return Life(outcome=outcome, asked=asked)
            if isinstance(outcome, Interrupted):
                asked += outcome.requests
                decisions = self._decided(outcome.requests)
            elif isinstance(outcome, Waiting) and outcome.due is not None:
                await clock.advance(max(0.0, (outcome.due - clock.now()).total_seconds()))
            outcome = await agent.resume(
                outcome.state, decisions, journal=disk, clock=clock, on_event=on_event
            )
        raise AssertionError(f"the run does not come to its end: {outcome.explain()}")

    async def _alone(self) -> tuple[Life, Outside]:
        """The same run without the middleware."""
        outside = Outside()
        return await self._live(self.new_agent([], outside)), outside

    async def _undisturbed(self) -> tuple[Life, Outside, Disk]:
        """The run with the middleware."""
        outside, disk = Outside(), Disk()
        agent = self.new_agent([self.new_middleware()], outside)
        return await self._live(agent, disk), outside, disk

    def _results_of(self, life: Life) -> Counter[str]:
        """The results of the calls of a life, in any order."""
        return Counter(
            json.dumps([part.tool_name, part.content, part.outcome], default=str)
            for message in life.state.messages
            for part in message.parts
            if part.part_kind == "tool-return"
        )

    def _refuse_unless(self, what: Change, same: bool, difference: str) -> None:
        """Fail if something differs, unless the middleware is there to change it."""
        assert same or what in self.changes, (
            f"{difference}: what it changes on purpose is in `changes`, such as {what!r}"
        )


def shown(messages: Sequence[ModelMessage]) -> list[object]:
    """Messages without ids and times. The calls and results of a message come in any order."""
    return [
        [
            type(message).__name__,
            *sorted(
                (
                    json.dumps([getattr(part, name, None) for name in _SHOWN], default=str)
                    for part in message.parts
                ),
            ),
        ]
        for message in messages
    ]
