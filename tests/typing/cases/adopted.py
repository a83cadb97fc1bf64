"""An agent of Pydantic AI keeps the types of its deps and its output when it is carried over."""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext

from understudy import Agent, Completed, Runtime, ScriptedModel


class Db:
    def balance(self, account: str) -> int:
        return len(account)


class Mailer: ...


class Invoice(BaseModel):
    number: str


MODEL = ScriptedModel(["{}"])
given = PydanticAgent(MODEL, name="clerk", deps_type=Db, output_type=Invoice)
assert_type(given, PydanticAgent[Db, Invoice])


@given.tool
def balance(ctx: RunContext[Db], account: str) -> int:
    return ctx.deps.balance(account)


adopted = Agent.from_pydantic_ai(given)
assert_type(adopted, Agent[Db, Invoice])
assert_type(Agent.from_pydantic_ai(given, listed_with=Db()), Agent[Db, Invoice])
Agent.from_pydantic_ai(given, listed_with=Mailer())  # error: the agent takes a Db

plain = Agent.from_pydantic_ai(PydanticAgent(MODEL, name="plain"))
assert_type(plain.execute_sync("go").state.status, str)
lines = PydanticAgent(MODEL, name="lines", deps_type=Db, output_type=list[Invoice])
assert_type(Agent.from_pydantic_ai(lines), Agent[Db, list[Invoice]])
Agent.from_pydantic_ai("clerk")  # error: it is no agent


async def run() -> None:
    outcome = await adopted.execute("go", deps=Db())
    match outcome:
        case Completed(output=output):
            assert_type(output, Invoice | None)
        case _:
            pass
    await adopted.execute("go", deps=Mailer())  # error: the agent takes a Db
    async with Runtime([adopted], deps_for=lambda agent_id: Db()) as runtime:
        answer: Any = await runtime.spawn(adopted, "ann").run("go")
        assert answer
