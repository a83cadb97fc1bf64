"""Two runtimes and one PostgreSQL database: an agent has one owner, and the other one takes over.

    pip install 'understudy[postgres]'
    python -m examples.two_hosts postgresql://user:password@server/database

Both are in one process here, so that the example is short; usually they are on two machines.
"""

import sys

from pydantic_ai.messages import ToolReturnPart

from understudy import (
    Agent,
    Completed,
    Interrupted,
    Runtime,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.errors import JournalFailed, OwnedElsewhere, UsageError
from understudy.models import ScriptedRequest

SECONDS = 60


@tool
def deploy(ctx: ToolContext, version: str) -> str:
    """Put a version into service."""
    return f"{version} was put into service by the {ctx.deps} runtime"


def engineer(request: ScriptedRequest) -> object:
    """Plays the model: it deploys, then reports the result."""
    for part in request.messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            return part.model_response_str()
    return call("deploy", {"version": "2.1"})


def runtime_called(name: str, store: str) -> Runtime:
    model = ScriptedModel(engineer)
    release = Agent("release", model, tools=[deploy], interrupt_on={"deploy": True})
    return Runtime([release], store=store, deps_for=lambda agent_id: name)


def main(store: str) -> None:
    with runtime_called("first", store) as first, runtime_called("second", store) as second:
        # 1. The runtime that activates an agent owns it.
        ref = first.spawn("release")
        outcome = ref.run("Release 2.1.").get(timeout=SECONDS)
        assert isinstance(outcome, Interrupted)

        # 2. The other one sees it in the store, with its owner. It cannot activate it.
        (found,) = [agent for agent in second.agents().get(timeout=SECONDS) if agent.id == ref.id]
        print(f"the second runtime sees: {found.id!r} is owned by {found.host!r}, and waits")
        decisions = outcome.decide(approve(by="ann"))
        try:
            second.get(ref.id).resume(decisions).get(timeout=SECONDS)
        except OwnedElsewhere as error:
            print(f"the second runtime may not answer for it: {error}")

        # 3. A runtime that stops releases its agents at once. The lease of one that is killed
        #    expires after some seconds, and then its agents are free as well.
        first.stop()
        outcome = second.get(ref.id).resume(decisions).get(timeout=SECONDS)
        assert isinstance(outcome, Completed), outcome
        print(f"the first one has stopped, and the second answers: {outcome.text}")
        second.delete(ref.id).get(timeout=SECONDS)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].startswith("postgres"):
        raise SystemExit("usage: python -m examples.two_hosts postgresql://...")
    try:
        main(sys.argv[1])
    except (UsageError, JournalFailed) as error:  # of the database
        raise SystemExit(f"{type(error).__name__}: {error}") from None
