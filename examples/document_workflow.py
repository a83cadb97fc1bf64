"""A writer, then a critic and a refiner in turns, until the critic has nothing left to say.

`python -m examples.document_workflow` plays a script. With `MODEL=local` a small real model on
this machine writes (`make local` installs it): tiny, so its texts are poor.
"""

import os
from typing import Any

from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import Model

from examples.demo_models import problem_of_the_local_model
from understudy import Agent, AgentState, Completed, Run, ScriptedModel, call
from understudy.events import AgentEnded, Event, ReplyEnded
from understudy.middleware import Middleware, ModelInput
from understudy.models import ScriptedRequest
from understudy.modes import Loop, Sequential
from understudy.tools import exit_loop

DONE = "No major issues found."
DRAFTS = (
    "Our kettle is the best kettle that anybody has ever made, and everybody says so.",
    "Our kettle boils a litre in two minutes.",
    "Our kettle boils a litre in two minutes, and costs 39 euros.",
)
CRITIQUES = ("It boasts. Say what the kettle does.", "Say what it costs.", DONE)


class ExitWhenDone(Middleware):
    """Offers the tools of its agent only when the critic is satisfied: no model can leave early."""

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput | None:
        return None if DONE in run.state.values["critique"] else request.replace(tools=())


class OnePrompt(Middleware):
    """Shows the model its instructions as one message: small models understand no more."""

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
        message = ModelRequest(parts=[UserPromptPart(request.instructions)])
        return request.replace(messages=[message], instructions="")


def refine(request: ScriptedRequest) -> Any:
    """The scripted refiner: it calls the tool when it is offered."""
    if request.tools:
        return [call("exit_loop")]
    return DRAFTS[1] if CRITIQUES[0] in request.instructions else DRAFTS[2]


def workflow(writes: Model, criticises: Model, refines: Model, *small: Middleware) -> Agent:
    """The agents, and their order."""
    writer = Agent(
        "writer",
        writes,
        "Write one sentence that sells {product}.",
        middleware=small,
        output_key="document",
    )
    critic = Agent(
        "critic",
        criticises,
        f"This text sells {{product}}:\n{{document}}\nSay in one short sentence what is wrong "
        f"with it. If nothing is, say exactly: {DONE}",
        middleware=small,
        output_key="critique",
        include_contents="none",
    )
    refiner = Agent(
        "refiner",
        refines,
        "This text sells {product}:\n{document}\nA critic says: {critique}\nIf that is "
        f"exactly {DONE!r}, call exit_loop. Else write the text anew, so that they are content.",
        tools=[exit_loop],
        middleware=[ExitWhenDone(), *small],
        output_key="document",
        include_contents="none",
    )
    improve = Agent("improve", mode=Loop([critic, refiner], max_iterations=5))
    return Agent("document", mode=Sequential([writer, improve]))


def show(event: Event) -> None:
    """Print who says what, and when a loop is left."""
    match event:
        case ReplyEnded(agent_path=path, response=response) if response.text:
            print(f"{path[-1]}: {response.text.strip()}")
        case AgentEnded(agent_path=path, round=round, escalated=True):
            print(f"{path[-1]} leaves the loop in round {round + 1}")
        case _:
            pass


def main() -> None:
    agent = workflow(ScriptedModel(DRAFTS[:1]), ScriptedModel(CRITIQUES), ScriptedModel(refine))
    if os.environ.get("MODEL") == "local":
        if problem := problem_of_the_local_model():
            print(f"{problem}. A script plays the model.")
        else:
            from examples.local_model import local_model  # loads a native library

            local = local_model()
            agent = workflow(local, local, local, OnePrompt())
    state = AgentState(values={"product": "a kettle"})
    outcome = agent.execute_sync("Sell it.", state=state, on_event=show)
    assert isinstance(outcome, Completed), outcome
    print(f"\n{outcome.state.values['document'].strip()}")
    print(f"{outcome.usage.requests} model calls")


if __name__ == "__main__":
    main()
