"""`Trust`: the people and the rules of a runtime, as they are now."""

from __future__ import annotations

from understudy.trust.people import People
from understudy.trust.rules import Rules


class Trust:
    """The people and the rules of a runtime. All of its runs share it, so a change holds at once.

    Args:
        people: who may vote; None where the application names nobody.
        rules: for the calls of all agents; None without.

    """

    def __init__(self, people: People | None = None, rules: Rules | None = None) -> None:
        self.people = people
        self.rules = rules


NO_TRUST = Trust()
"""Of what runs outside of a runtime: nobody votes there, and gates alone ask."""
