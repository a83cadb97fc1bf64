"""A tool that needs to know something from a person before it can continue."""

import json

from pydantic_ai.messages import ToolReturnPart

from understudy import (
    Agent,
    AgentState,
    Completed,
    Interrupt,
    Interrupted,
    ScriptedModel,
    ToolContext,
    call,
    respond,
    tool,
)


# 1. The tool raises `Interrupt` with its question. After the answer it runs again from its start,
#    now with `ctx.resume_value`. So the question comes first, and the effect after it.
@tool
def deploy(ctx: ToolContext, version: str) -> str:
    """Deploy a version."""
    if ctx.resume_value is None:
        raise Interrupt({"question": f"Where shall {version} go?", "options": ["test", "live"]})
    return f"{version} is on {ctx.resume_value}"


@tool
def changelog(version: str) -> str:
    """What is new in a version."""
    print(f"  ... reading the changelog of {version}")
    return "a new kettle"


def main() -> None:
    # 2. The model calls both tools in one reply.
    model = ScriptedModel(
        [
            [call("deploy", {"version": "2.1"}), call("changelog", {"version": "2.1"})],
            "2.1 is out, with a new kettle.",
        ]
    )
    agent = Agent("releases", model, tools=[deploy, changelog])

    # 3. The run stops for the question. `changelog` has run: siblings finish first.
    outcome = agent.execute_sync("Release 2.1.")
    assert isinstance(outcome, Interrupted), outcome
    (request,) = outcome.requests
    assert isinstance(request.payload, dict), "what the tool asked"
    print(f"{request.tool_name} asks: {request.payload['question']} {request.payload['options']}")

    # 4. As with approvals, the state goes through JSON.
    state = AgentState.from_dict(json.loads(json.dumps(outcome.state.to_dict())))

    # 5. Only `deploy` runs again, and the model gets what it returned.
    print("a person answers: test")
    outcome = agent.resume_sync(state, {request.id: respond("test")})
    assert isinstance(outcome, Completed), outcome
    for part in outcome.state.messages[2].parts:
        assert isinstance(part, ToolReturnPart)
        print(f"  {part.tool_name} gave: {part.content}")
    print(outcome.text)


if __name__ == "__main__":
    main()
