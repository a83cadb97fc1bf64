"""The deps of an agent are typed, where they are given and where tools and middleware read them."""

from __future__ import annotations

from typing import Any, assert_type

from understudy import (
    Agent,
    Completed,
    Failed,
    Run,
    Runtime,
    ScriptedModel,
    Stopped,
    ToolContext,
    tool,
)
from understudy.middleware import Middleware, SubAgent
from understudy.modes import AgentExecution, Loop, Mode, Parallel, Sequential


class Db:
    def balance(self, account: str) -> int:
        return len(account)


class PostgresDb(Db): ...


class Mailer: ...


@tool
def balance(ctx: ToolContext[Db], account: str) -> int:
    assert_type(ctx.deps, Db)
    ctx.deps.send(account)  # error: a Db has no send
    return ctx.deps.balance(account)


def audit(ctx: ToolContext[Db]) -> str:
    return str(ctx.deps.balance("all"))


@tool
def now() -> str:
    return "noon"


@tool
def anything(ctx: ToolContext) -> str:
    assert_type(ctx.deps, Any)
    return str(ctx.deps.whatever)


class Audit(Middleware[Db]):
    async def on_run_start(self, run: Run[Db]) -> None:
        assert_type(run.deps, Db)
        run.deps.balance("ann")
        run.deps.send("ann")  # error: a Db has no send


class AnyDeps(Middleware):
    async def on_run_start(self, run: Run) -> None:
        assert_type(run.deps, Any)


class Mails(Middleware[Mailer]):
    async def on_run_start(self, run: Run[Db]) -> None: ...  # error: the run is that of a Mailer


async def charge(run: Run[Db]) -> None:
    run.deps.balance("ann")


MODEL = ScriptedModel(["fine"])
bank = Agent[Db, str]("bank", MODEL, tools=[balance, audit, now, anything], middleware=[Audit()])
mail = Agent[Mailer, str]("mail", MODEL)
by_middleware = Agent("by_middleware", MODEL, middleware=[Audit()])
Agent("any", MODEL, middleware=[Audit(), AnyDeps()])
assert_type(by_middleware, Agent[Db, Any])
bare: Agent = bank
anywhere: Agent[PostgresDb, str] = bank
elsewhere: Agent[Mailer, str] = bank  # error: it needs a Db

Agent[Mailer, str]("x", MODEL, middleware=[Audit()])  # error: Audit needs a Db
Agent[Mailer, str]("x", MODEL, middleware=[SubAgent([mail, {"name": "child"}])])
Agent[Mailer, str]("x", MODEL, middleware=[SubAgent([bank])])  # error: the child needs a Db
Agent[Mailer, str]("x", mode=Sequential([mail]))
Agent[Mailer, str]("x", mode=Sequential([mail, bank]))  # error: one of the two needs a Db
Agent[Mailer, str]("x", mode=Parallel([bank]))  # error: the agent in it needs a Db
Agent[Mailer, str]("x", mode=Loop([bank], 3))  # error: the agent in it needs a Db
Agent[Mailer, str]("x", MODEL, mode=Mode([charge]))  # error: the step needs a Db
Agent[Db, str]("x", MODEL, mode=AgentExecution().inserting(after="call_llm", step=charge))


class Teller(Agent[Db, str]):
    """An agent of the application's own."""


teller = Teller("teller", MODEL)
assert_type(Sequential([bank]), Sequential[Db])
assert_type(Loop([bank], 3), Loop[Db])
assert_type(Parallel([bank, teller]), Parallel[Db])
assert_type(SubAgent([bank]), SubAgent[Db])
assert_type(Agent("x", mode=Sequential([bank])), Agent[Db, Any])
assert_type(Agent("x", MODEL, middleware=[SubAgent([teller])]), Agent[Db, Any])
Agent[PostgresDb, str]("x", MODEL, mode=Sequential([bank, teller, bare]))
Agent[PostgresDb, str]("x", MODEL, middleware=[SubAgent([bank, teller, bare])])
Sequential(["bank"])  # error: a name is no agent
Loop([balance])  # error: a tool is no agent
Parallel([bank.definition])  # error: a definition is no agent
Parallel(bank)  # error: no list
SubAgent([Audit()])  # error: a middleware is no agent
SubAgent(["bank"])  # error: a name is no agent
SubAgent([bank.definition])  # error: a definition is no agent
SubAgent([Agent])  # error: the class is no agent


async def give_deps(db: PostgresDb, mailer: Mailer) -> None:
    await bank.execute("hello")
    outcome = await bank.execute("hello", deps=db)
    await bank.execute("hello", deps=mailer)  # error: not a Db
    bank.execute_sync("hello", deps=db)
    bank.execute_sync("hello", deps=mailer)  # error: not a Db
    await bank.resume(outcome.state, deps=db)
    await bank.resume(outcome.state, deps=mailer)  # error: not a Db
    bank.resume_sync(outcome.state, deps=mailer)  # error: not a Db
    bank.stream("hello", deps=db)
    bank.stream("hello", deps=mailer)  # error: not a Db
    await bank.extract(balance, "hello", deps=db)
    await bank.extract(balance, "hello", deps=mailer)  # error: not a Db
    await by_middleware.execute("hello", deps=mailer)  # error: not a Db
    await bare.execute("hello", deps=mailer)


@tool
async def delegates(ctx: ToolContext[Db]) -> str:
    await ctx.run_agent(bank, "hello")
    await ctx.run_agent("a child", "hello")
    await ctx.run_agent(mail, "hello")  # error: the agent gets these deps, and needs a Mailer
    assert_type(await ctx.run_agent(teller, "hello"), Completed[str] | Stopped | Failed)
    assert_type(await ctx.run_agent(bare, "hello"), Completed[Any] | Stopped | Failed)
    await ctx.run_agent(bank.definition, "hello")  # error: a definition is no agent
    await ctx.run_agent(balance, "hello")  # error: a tool is no agent
    await ctx.run_agent({"name": "child"}, "hello")  # error: options are for SubAgent
    await ctx.run_agent(Teller, "hello")  # error: the class is no agent
    return "done"


def db_of(id: str) -> Db | None:
    return Db() if id else None


def any_deps_of(id: str) -> Any:
    return Db() if id else Mailer()


def hosted(db: Db, mailer: Mailer) -> None:
    runtime = Runtime([bank, bare], deps_for=db_of)
    Runtime([bank, mail])
    Runtime(deps_for=db_of)
    Runtime([mail], deps_for=db_of)  # error: the agent needs a Mailer
    several: list[Agent] = [bank, mail]
    Runtime(several, deps_for=any_deps_of)
    runtime.spawn(bank, "1", deps=db)
    runtime.spawn(bank, "1", deps=mailer)  # error: not a Db
    runtime.spawn("bank", "1", deps=mailer)
