"""`outcome.output` has the agent's `output_type`, wherever the outcome comes from."""

from __future__ import annotations

from typing import Annotated, Any, Literal, assert_type

from pydantic import BaseModel, Field

from understudy import (
    Agent,
    AgentRef,
    Completed,
    Failed,
    Interrupted,
    Outcome,
    OutcomeOf,
    Paused,
    Runtime,
    ScriptedModel,
    Stopped,
    ToolContext,
    Waiting,
)


class Invoice(BaseModel):
    number: str
    total: float


MODEL = ScriptedModel(["{}"])
reader = Agent("reader", MODEL, output_type=Invoice)
assert_type(reader, Agent[Any, Invoice])
assert_type(Agent("reader", MODEL, output_type=list[Invoice]), Agent[Any, list[Invoice]])
assert_type(Agent("reader", MODEL, output_type=int | None), Agent[Any, int | None])
assert_type(Agent("reader", MODEL, output_type=Annotated[int, Field(gt=3)]), Agent[Any, int])
choice = Agent("reader", MODEL, output_type=Literal["yes", "no"])
plain = Agent("plain", MODEL)
assert_type(plain, Agent[Any, Any])
annotated: Agent[None, Invoice] = Agent("reader", MODEL, output_type=Invoice)
wrong: Agent[None, int] = Agent("reader", MODEL, output_type=Invoice)  # error: another type
wider: Agent[Any, BaseModel] = reader


def in_a_function(agent: Agent[Any, Invoice]) -> float:
    outcome = agent.execute_sync("Read it.")
    assert_type(outcome, Completed[Invoice] | Interrupted | Paused | Waiting | Stopped | Failed)
    outcome.output  # error: not every outcome has one
    if isinstance(outcome, Completed) and outcome.output is not None:
        assert_type(outcome.output, Invoice)
        outcome.output.totl  # error: a misspelt field
        return outcome.output.total
    return 0.0


async def everywhere(ref: AgentRef[Invoice], ctx: ToolContext, runtime: Runtime) -> None:
    outcomes: list[OutcomeOf[Invoice]] = [
        await reader.execute("Read it."),
        reader.execute_sync("Read it."),
        await ref.run("Read it."),
        await ref.resume({}),
        await ref.retry(),
        await ctx.run_agent(reader, "Read it."),
        await runtime.spawn(reader).run("Read it."),
        ref.run("Read it.").get(timeout=1),
    ]
    outcomes += [await reader.resume(outcomes[0].state), reader.resume_sync(outcomes[0].state)]
    assert_type(await ref.outcome(), OutcomeOf[Invoice] | None)
    assert_type(await ref.cancel(), OutcomeOf[Invoice] | None)
    async for event in reader.stream("Read it."):
        match event:
            case Completed(output=output):
                assert_type(output, Invoice | None)
            case _:
                pass
    match await ctx.run_agent(reader, "Read it."):
        case Completed(output=output):
            assert_type(output, Invoice | None)
        case other:
            assert_type(other, Stopped | Failed)
    by_name = await ctx.run_agent("reader", "Read it.")
    assert_type(by_name, Completed[Any] | Stopped | Failed)
    match await choice.execute("Yes or no?"):
        case Completed(output="yes"):
            pass
        case Completed(output=answer) if answer == "nope":  # error: no such answer
            pass
        case _:
            pass


def any_outcome(outcome: Outcome) -> None:
    if isinstance(outcome, Completed):
        assert_type(outcome.output, Any | None)
