"""understudy under measurement, and the floor: a loop over the same model with no framework."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.adapter import PROMPT, Adapter

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

__all__ = ["BareLoop", "Understudy"]


class Understudy(Adapter):
    """`Agent.execute`, no store."""

    name = "understudy"
    packages = ("understudy", "pydantic-ai-slim", "pydantic")
    import_statement = "import understudy"

    def __init__(self) -> None:
        super().__init__()
        from benchmarks.fake_model import Fake, respond
        from understudy import Agent, Completed

        self._agent, self._completed, self._fake = Agent, Completed, Fake
        self._respond = respond

    def build(self, steps: int) -> object:
        async def add(a: int, b: int) -> int:
            """Add two integers."""
            self.tool_calls += 1
            return a + b

        return self._agent(name="bench", model=self._fake(steps), tools=[add], max_runs=10**6)

    async def run(self, steps: int) -> None:
        outcome = await self.agent(steps).execute(PROMPT)
        if not isinstance(outcome, self._completed):
            raise AssertionError(f"{self.name} ended with {outcome!r}")
        self.check(outcome.text)

    def answer(self) -> None:
        self._respond(9, [None])


class BareLoop(Adapter):
    """The fake model and the tool, called in a loop that appends messages to a list.

    It validates nothing, records nothing and could not be resumed: no framework can be faster.
    """

    name = "bare loop"

    def __init__(self) -> None:
        super().__init__()
        from pydantic_ai import messages, models

        from benchmarks.fake_model import Fake, respond

        self._fake, self._respond = Fake, respond
        self._messages, self._parameters = messages, models.ModelRequestParameters()

    def build(self, steps: int) -> object:
        return self._fake(steps)

    async def run(self, steps: int) -> None:
        m = self._messages
        model = self.agent(steps)
        history: list[ModelMessage] = [m.ModelRequest(parts=[m.UserPromptPart(PROMPT)])]
        while True:
            response = await model.request(history, None, self._parameters)
            history.append(response)
            part = response.parts[0]
            if isinstance(part, m.TextPart):
                return self.check(part.content)
            result = await self._add(**json.loads(part.args))
            returned = m.ToolReturnPart(part.tool_name, result, part.tool_call_id)
            history.append(m.ModelRequest(parts=[returned]))

    async def _add(self, a: int, b: int) -> int:
        self.tool_calls += 1
        return a + b

    def answer(self) -> None:
        self._respond(9, [None])
