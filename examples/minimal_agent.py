"""The smallest agent: a tool, a model, a message, an outcome."""

from understudy import Agent, Completed, ScriptedModel, call, tool


# 1. A tool is a function. Its signature and docstring tell the model how to call it.
@tool
def lookup(order_id: str) -> str:
    """Look up what was ordered.

    Args:
        order_id: the number on the invoice.

    """
    return f"order {order_id}: one kettle, paid 49.90"


def main() -> None:
    # 2. A scripted model, so that this runs without a key: first it calls the tool, then it
    #    answers. With a key, write model="openai:gpt-5-mini" instead.
    model = ScriptedModel([call("lookup", {"order_id": "17"}), "You ordered a kettle."])

    # 3. The agent. Nothing runs yet, but every option is checked.
    agent = Agent("support", model, "You help customers.", tools=[lookup])

    # 4. One run, from a message to an outcome. It raises for nothing the model or a tool does.
    outcome = agent.execute_sync("What did I order? My number is 17.")
    assert isinstance(outcome, Completed), outcome
    print(outcome.text)

    # 5. The outcome carries the whole conversation, to continue or to store.
    print(f"{len(outcome.state.messages)} messages, {outcome.usage.requests} model calls")


if __name__ == "__main__":
    main()
