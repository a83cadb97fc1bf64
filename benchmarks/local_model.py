"""How often the small local model of the demos is right: `python -m benchmarks.local_model`.

Each message is one that `examples.local_model` does not show to the model. Right is a choice that
calls the tools that are expected, no more and no less; the arguments are counted apart. Needs what
`make local` installs.
"""

from __future__ import annotations

import time

from pydantic_ai.messages import ModelResponse

from examples.local_model import local_model
from examples.support_desk import Shop, support_agent

MESSAGES = (
    ("My coffee grinder from order 17 came broken. Please refund it.", 2),
    ("I want my money back for order 18.", 2),
    ("Order 17 never arrived, refund me please.", 2),
    ("The espresso machine of order 18 leaks. I demand a refund!", 2),
    ("Could you pay me back what I spent on order 17?", 2),
    ("I am not happy with order 18 and would like a refund.", 2),
    ("Refund 18", 2),
    ("What did I pay for order 17?", 1),
    ("Has order 18 been delivered?", 1),
    ("What is the status of order 17?", 1),
    ("Which item is order 18?", 1),
    ("Can you look up order 17 for me?", 1),
    ("Where is order 18?", 1),
    ("Tell me about order 17.", 1),
    ("Hello!", 0),
    ("What are your opening hours?", 0),
    ("Thank you for your help.", 0),
    ("Do you sell tea pots?", 0),
    ("How long does shipping take?", 0),
    ("Who are you?", 0),
)
"""What a customer writes, and how many tools to call: none, to look up, to look up and refund."""


def main() -> None:
    """Print what the model did with each message, and how many it got right."""
    model = local_model()
    chosen_well = written_well = 0
    begun = time.perf_counter()
    for message, expected in MESSAGES:
        outcome = support_agent(model).execute_sync(message, deps=Shop())
        replies = [m for m in outcome.state.messages if isinstance(m, ModelResponse)]
        calls = [c for reply in replies for c in reply.tool_calls]
        order = next((number for number in ("17", "18") if number in message), "")
        well = len(calls) == expected
        copied = all(c.args_as_dict().get("order_id") == order for c in calls)
        chosen_well += well
        written_well += well and copied
        told = ", ".join(f"{c.tool_name} {c.args_as_json_str()}" for c in calls) or "answers"
        print(f"{'ok   ' if well and copied else 'WRONG'} {message!r}: {told}")
    seconds = (time.perf_counter() - begun) / len(MESSAGES)
    print(f"the right tools: {chosen_well} of {len(MESSAGES)}")
    print(f"with the right order number: {written_well}; {seconds:.1f} s for each")


if __name__ == "__main__":
    main()
