"""The conversation that every app has: six model calls, five tool calls, one approval.

A run is two requests of a client. The first one says what the customer wants, and ends when the
agent asks whether it may pay. The second one approves, and ends with the agent's last reply.
"""

from __future__ import annotations

__all__ = ["DELAY", "FINAL", "INSTRUCTIONS", "MODEL_CALLS", "PROMPT", "SCRIPT", "found", "paid"]

INSTRUCTIONS = "You help customers of a shop."
PROMPT = "Refund my order, please."
FINAL = "done"
SCRIPT = ("look", "look", "pay", "look", "look", None)
"""The tool that the model asks for, by the number of replies before; None is the final text."""
MODEL_CALLS = len(SCRIPT)
DELAY = 0.02
"""Seconds that the model takes for a reply."""


def found(order: str) -> dict[str, str | int]:
    """What the tool `look` returns."""
    return {"order": order, "item": "kettle", "price": 20}


def paid(order: str) -> str:
    """What the tool `pay` returns, which a person approves before."""
    return f"paid {order}"
