"""Get a typed value out of a text: the run ends when the tool that takes it succeeds."""

import asyncio

from pydantic import BaseModel, Field

from understudy import Agent, NotExtracted, ScriptedModel, call, tool


# 1. The value, as a Pydantic model: the LLM gets its schema, and its answer is checked.
class Invoice(BaseModel):
    number: str
    total: float = Field(gt=0)


@tool
def save(invoice: Invoice) -> Invoice:
    """Save the invoice that the text describes."""
    return invoice


async def main() -> None:
    # 2. This model gets the total wrong at first. The error goes back to it, and it corrects it.
    model = ScriptedModel(
        [
            call("save", {"number": "A-17", "total": -49.9}),
            call("save", {"number": "A-17", "total": 49.9}),
        ]
    )
    agent = Agent("reader", model, "Read invoices.", tools=[save])

    # 3. `extract` runs until `save` succeeds and returns what it returned: an Invoice, also for
    #    the type checker.
    invoice = await agent.extract(save, "Invoice A-17 over 49.90, thank you.")
    print(f"Extracted: {invoice!r}, after {len(model.requests)} model calls")

    # 4. A model that stops without it: `extract` raises, and says how the run ended.
    chatty = Agent("reader", ScriptedModel(["I see no invoice."]), tools=[save])
    try:
        await chatty.extract(save, "Hello!")
    except NotExtracted as error:
        print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    asyncio.run(main())
