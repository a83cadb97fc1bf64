"""A middleware of your own: each tool may be used so many times in a conversation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart

from understudy import Agent, Completed, Run, ScriptedModel, ToolResult, call, tool
from understudy.middleware import (
    AgentDefinition,
    Middleware,
    ModelInput,
    Next,
    Prepared,
    ToolCall,
)


# 1. What it keeps, as typed values of the agent's state: stored, restored and checked with it.
class Uses(BaseModel):
    uses: dict[str, str] = {}
    """Tool names by call key. One key for each call, so parallel calls merge."""


class Ration(Middleware):
    """Hides a tool from the model when it was used often enough."""

    state_schema = Uses

    def __init__(self, times: int) -> None:
        self.times = times

    # 2. Once, when the agent is made: instructions (and tools, if it has some) for the model.
    def prepare(self, definition: AgentDefinition) -> Prepared:
        return Prepared(instructions=f"Use each tool {self.times} times at most.")

    # 3. Before each model call: what the model is shown this time. State and tools stay as they
    #    are.
    async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
        gone = self._used_up(run)
        return request.replace(tools=tuple(t for t in request.tools if t.name not in gone))

    # 4. After each: the reply as it is recorded.
    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
        gone = self._used_up(run)
        if reply.tool_calls or not gone:
            return None
        return replace(reply, parts=[*reply.parts, TextPart(f" (used up: {', '.join(gone)})")])

    # 5. Around each call: run it with `next`, and add to its result.
    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> ToolResult[object]:
        return ToolResult(await next(call), state={"uses": {call.key: call.tool_name}})

    def _used_up(self, run: Run) -> Sequence[str]:
        uses = Counter(run.state.values["uses"].values())
        return [name for name, times in uses.items() if times >= self.times]


@tool
def search(words: str) -> str:
    """Search the archive."""
    return f"nothing about {words}"


def main() -> None:
    # 6. Two searches in one reply use it up: the next model call offers none.
    model = ScriptedModel(
        [
            [call("search", {"words": "kettles"}), call("search", {"words": "pots"})],
            "I found nothing.",
        ]
    )
    agent = Agent("archivist", model, "You search.", tools=[search], middleware=[Ration(times=2)])
    outcome = agent.execute_sync("What do we know of kettles?")
    assert isinstance(outcome, Completed), outcome

    print(f"The model is told: {model.requests[0].instructions!r}")
    for number, request in enumerate(model.requests, 1):
        print(f"In call {number} it is offered {', '.join(request.tools) or 'no tool'}.")
    print(f"Its answer, as it is recorded: {outcome.text}")
    print(f"Kept in the state: {sorted(outcome.state.values['uses'].values())}")


if __name__ == "__main__":
    main()
