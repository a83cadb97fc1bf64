"""Two runtimes and one PostgreSQL database: either answers for an agent, and one takes over.

    pip install '.[postgres]'
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
from understudy.errors import JournalFailed, UsageError
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

        # 2. The other one sees it in the store, with its owner, and takes the answer: while an
        #    agent waits for a person, nothing of it goes on, and any runtime may go on with it.
        #    (Where its owner is not done with it yet, it hands the answer over.)
        found = second.get(ref.id).info().get(timeout=SECONDS)
        print(f"the second runtime sees: {found.id!r} is owned by {found.host!r}, and waits")
        outcome = second.get(ref.id).resume(outcome.decide(approve(by="ann"))).get(timeout=SECONDS)
        assert isinstance(outcome, Completed), outcome
        print(f"it is given the answer: {outcome.text}")

        # 3. A runtime that stops releases its agents at once. The lease of one that is killed
        #    expires after some seconds, and then its agents are free as well.
        second.stop()
        outcome = ref.run("Release 2.1 once more.").get(timeout=SECONDS)
        assert isinstance(outcome, Interrupted), outcome
        outcome = ref.resume(outcome.decide(approve(by="ann"))).get(timeout=SECONDS)
        assert isinstance(outcome, Completed), outcome
        print(f"the second one has stopped, and the first goes on: {outcome.text}")
        first.delete(ref.id).get(timeout=SECONDS)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].startswith("postgres"):
        raise SystemExit("usage: python -m examples.two_hosts postgresql://...")
    try:
        main(sys.argv[1])
    except (UsageError, JournalFailed) as error:  # of the database
        raise SystemExit(f"{type(error).__name__}: {error}") from None
