"""The rivals under measurement, each used as its own documentation says. All are optional."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from benchmarks.adapter import FINAL, PROMPT, Adapter, next_call

__all__ = ["RIVALS", "LangChain", "LangGraph", "OpenAIAgents", "PydanticAI"]


class PydanticAI(Adapter):
    """Pydantic AI's own agent loop, over the model that ours is measured with."""

    name = "pydantic-ai"
    packages: ClassVar[tuple[str, ...]] = ("pydantic-ai-slim", "pydantic")
    import_statement = "from pydantic_ai import Agent"

    def __init__(self) -> None:
        super().__init__()
        from pydantic_ai import Agent
        from pydantic_ai.usage import UsageLimits

        from benchmarks.fake_model import Fake, respond

        self._agent, self._fake, self._respond = Agent, Fake, respond
        self._limits = UsageLimits(request_limit=None)

    def build(self, steps: int) -> object:
        async def add(a: int, b: int) -> int:
            """Add two integers."""
            self.tool_calls += 1
            return a + b

        return self._agent(self._fake(steps), tools=[add])

    async def run(self, steps: int) -> None:
        result = await self.agent(steps).run(PROMPT, usage_limits=self._limits)
        self.check(result.output)

    def answer(self) -> None:
        self._respond(9, [None])


class LangGraph(Adapter):
    """`create_react_agent`, which is deprecated in favour of LangChain's `create_agent`."""

    name = "langgraph create_react_agent"
    packages: ClassVar[tuple[str, ...]] = ("langgraph", "langgraph-prebuilt", "langchain-core")
    import_statement = "from langgraph.prebuilt import create_react_agent"

    def __init__(self) -> None:
        super().__init__()
        warnings.simplefilter("ignore")  # its deprecation, on each use
        self._create = self._constructor()
        from langchain_core.language_models.chat_models import BaseChatModel
        from langchain_core.messages import AIMessage
        from langchain_core.outputs import ChatGeneration, ChatResult
        from langchain_core.tools import tool

        def respond(steps: int, messages: list[Any]) -> Any:
            number = next_call(steps, len(messages))
            if number is None:
                message = AIMessage(FINAL)
            else:
                call = {"name": "add", "args": {"a": number, "b": 1}, "id": f"call_{number}"}
                message = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=message)])

        class FakeChat(BaseChatModel):  # type: ignore[misc]  # rivals are read as untyped
            steps: int

            @property
            def _llm_type(self) -> str:
                return "fake"

            def bind_tools(self, tools: Any, **options: Any) -> FakeChat:
                return self  # a real one converts the schemas here

            def _generate(self, messages: list[Any], *rest: Any, **options: Any) -> Any:
                return respond(self.steps, messages)

            async def _agenerate(self, messages: list[Any], *rest: Any, **options: Any) -> Any:
                return respond(self.steps, messages)

        @tool  # type: ignore[untyped-decorator]  # rivals are read as untyped
        async def add(a: int, b: int) -> int:
            """Add two integers."""
            self.tool_calls += 1
            return a + b

        self._fake, self._respond, self._tool = FakeChat, respond, add

    def _constructor(self) -> Any:
        from langgraph.prebuilt import create_react_agent

        return create_react_agent

    def build(self, steps: int) -> Any:
        return self._create(self._fake(steps=steps), [self._tool])

    async def run(self, steps: int) -> None:
        result = await self.agent(steps).ainvoke(
            {"messages": [("user", PROMPT)]}, {"recursion_limit": 4 * steps + 10}
        )
        self.check(result["messages"][-1].content)

    def answer(self) -> None:
        self._respond(9, [None])


class LangChain(LangGraph):
    """`create_agent` with no middleware: the current way, on LangGraph."""

    name = "langchain create_agent"
    packages = ("langchain", *LangGraph.packages)
    import_statement = "from langchain.agents import create_agent"

    def _constructor(self) -> Any:
        from langchain.agents import create_agent

        return create_agent


class OpenAIAgents(Adapter):
    """The OpenAI Agents SDK, its tracing off."""

    name = "openai-agents"
    packages = ("openai-agents", "openai")
    import_statement = "from agents import Agent, Runner"

    def __init__(self) -> None:
        super().__init__()
        from agents import (
            Agent,
            ModelResponse,
            RunConfig,
            Runner,
            Usage,
            function_tool,
            set_tracing_disabled,
        )
        from agents.models.interface import Model
        from openai.types.responses import (
            ResponseFunctionToolCall,
            ResponseOutputMessage,
            ResponseOutputText,
        )

        set_tracing_disabled(True)

        def respond(steps: int, given: str | list[Any]) -> Any:
            number = next_call(steps, 1 if isinstance(given, str) else len(given))
            output: ResponseOutputMessage | ResponseFunctionToolCall
            if number is None:
                text = ResponseOutputText(text=FINAL, type="output_text", annotations=[])
                output = ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            else:
                output = ResponseFunctionToolCall(
                    id=f"f{number}",
                    call_id=f"call_{number}",
                    type="function_call",
                    name="add",
                    arguments=f'{{"a": {number}, "b": 1}}',
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        class FakeModel(Model):  # type: ignore[misc]  # rivals are read as untyped
            def __init__(self, steps: int) -> None:
                self.steps = steps

            async def get_response(
                self, system_instructions: str | None, input: Any, *rest: Any, **options: Any
            ) -> Any:
                return respond(self.steps, input)

            def stream_response(self, *rest: Any, **options: Any) -> Any:
                raise NotImplementedError

        async def add(a: int, b: int) -> int:
            """Add two integers."""
            self.tool_calls += 1
            return a + b

        self._agent, self._runner, self._fake = Agent, Runner, FakeModel
        self._respond, self._function_tool, self._add = respond, function_tool, add
        self._config = RunConfig(tracing_disabled=True)

    def build(self, steps: int) -> Any:
        tools = [self._function_tool(self._add)]
        return self._agent(name="bench", model=self._fake(steps), tools=tools)

    async def run(self, steps: int) -> None:
        result = await self._runner.run(
            self.agent(steps), PROMPT, max_turns=steps + 1, run_config=self._config
        )
        self.check(result.final_output)

    def answer(self) -> None:
        self._respond(9, PROMPT)


RIVALS: tuple[type[Adapter], ...] = (PydanticAI, LangGraph, LangChain, OpenAIAgents)
