"""A mode of your own: the usual pipeline with one more step, a budget of tokens."""

from understudy import Agent, Completed, Outcome, Paused, Run, ScriptedModel, call, tool
from understudy.modes import AgentExecution


# 1. A step is an async function of the run. It looks at the state and returns None to continue, or
#    an outcome to end. It has no state of its own, so it is right after a pause or a crash too.
async def within_budget(run: Run) -> Outcome | None:
    """Pause before the model call that the budget does not cover any more."""
    if run.current.turn is None and run.usage.total_tokens >= run.deps["budget"]:
        return run.paused(f"{run.usage.total_tokens} tokens used")
    return None


# 2. A mode is a tuple of named steps: put yours among them by name.
budgeted = AgentExecution().inserting(before="call_llm", step=within_budget)


@tool
def search(words: str) -> str:
    """Search the archive."""
    return f"nothing about {words}"


def main() -> None:
    print(budgeted)

    # 3. A model that searches twice; each of its replies costs two tokens here.
    model = ScriptedModel(
        [
            call("search", {"words": "kettles"}),
            call("search", {"words": "pots"}),
            "I found nothing.",
        ]
    )
    agent = Agent("archivist", model, tools=[search], mode=budgeted)

    # 4. It stops when four tokens are used, with all that was found so far in the state.
    outcome = agent.execute_sync("What do we know of kettles?", deps={"budget": 4})
    assert isinstance(outcome, Paused), outcome
    print(outcome.explain())

    # 5. With a larger budget, it continues from there.
    outcome = agent.resume_sync(outcome.state, deps={"budget": 100})
    assert isinstance(outcome, Completed), outcome
    print(f"With a budget of 100: {outcome.text} ({len(model.requests)} model calls)")


if __name__ == "__main__":
    main()
