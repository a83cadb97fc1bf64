"""A research agent with a budget, in tokens or USD, that still answers when it is used up."""

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from understudy import Agent, Completed, Price, Run, ScriptedModel, StopAgent, StopSignal, tool
from understudy.middleware import Limits, Middleware
from understudy.models import ScriptedRequest

FOUND = {
    "kettles": "Kettles are older than Rome.",
    "spouts": "Spouts came with the silversmiths.",
    "handles": "There are no books about handles.",
}


# 1. Its tool. A tool stops the run where continuing would be wrong.
@tool
async def search(topic: str) -> str:
    """Search the archive for a topic."""
    print(f"  ... searching for {topic}")
    if topic == "secrets":
        raise StopAgent(StopSignal.stop_requested("that shelf is locked", source="archive"))
    return FOUND[topic]


# 2. A model that would search for ever; each of its replies costs 300 tokens. (Any model of
#    Pydantic AI, such as "openai:gpt-5-mini", reports its usage by itself.)
def researcher(*topics: str) -> ScriptedModel:
    def reply(request: ScriptedRequest) -> ModelResponse:
        asked = sum(isinstance(message, ModelResponse) for message in request.messages)
        if not request.tools:
            said = f"From {asked} searches: {FOUND['kettles']} The rest is still open."
            part: TextPart | ToolCallPart = TextPart(said)
        else:
            part = ToolCallPart("search", {"topic": topics[asked % len(topics)]})
        usage = RequestUsage(input_tokens=250, output_tokens=50)
        return ModelResponse(parts=[part], usage=usage)

    return ScriptedModel(reply)


# 3. A middleware that overrides the limit: the first time, it grants one more step.
class Generous(Middleware):
    async def before_step(self, run: Run) -> None:
        granted = any(override.source == "generous" for override in run.current.overrides)
        if run.continuation.should_stop and not granted:
            print("  ... one more step is granted")
            run.request_continuation(source="generous")


def main() -> None:
    topics = ("kettles", "spouts", "handles")

    # 4. The budget is checked before each step. When it is used up, the model answers once more,
    #    without tools, by what it has found so far.
    print("A budget of 600 tokens, and an answer at its end:")
    budget = Limits(max_tokens=600, on_limit="generate")
    agent = Agent("researcher", researcher(*topics), tools=[search], middleware=[budget])
    outcome = agent.execute_sync("What do we know of kettles?")
    assert isinstance(outcome, Completed), outcome
    print(outcome.text)
    print(outcome.explain())

    # 5. The same budget, with a middleware that extends it.
    print("\nThe same, with one more step granted:")
    stack = [budget, Generous()]
    agent = Agent("researcher", researcher(*topics), tools=[search], middleware=stack)
    outcome = agent.execute_sync("What do we know of kettles?")
    print(outcome.explain())

    # 6. A budget that stops the run. What was found is in the state, for another run.
    print("\nA budget of 600 tokens, without an answer:")
    agent = Agent(
        "researcher", researcher(*topics), tools=[search], middleware=[Limits(max_tokens=600)]
    )
    outcome = agent.execute_sync("What do we know of kettles?")
    print(outcome.explain())

    # 7. A budget in USD. A model that nobody sells gets its price from you; those of the providers
    #    are known. Nothing else needs to be said: each reply is priced when it comes.
    print("\nA budget of half a cent, at 10 USD for a million tokens:")
    price = {"scripted": Price(input=10, output=10)}
    limit = Limits(max_cost="0.005", pricing=price)
    agent = Agent("researcher", researcher(*topics), tools=[search], middleware=[limit])
    outcome = agent.execute_sync("What do we know of kettles?")
    print(outcome.explain())
    print(f"cost: {outcome.cost}, for {outcome.cost.requests} requests")

    # 8. A tool that stops the run, and says why.
    print("\nA tool that stops the run:")
    agent = Agent("researcher", researcher("secrets"), tools=[search])
    print(agent.execute_sync("What is in the cellar?").explain())


if __name__ == "__main__":
    main()
