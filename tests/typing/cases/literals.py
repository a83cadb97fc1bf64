"""A word that is none of those that an option or a field has is an error."""

from __future__ import annotations

from understudy import Agent, AgentRef, Runtime, ScriptedModel, Status, events
from understudy.middleware import HumanInTheLoop, Limits
from understudy.outcomes import Completed

MODEL = ScriptedModel(["done"])
Agent("a", MODEL, early_stopping="generate", include_contents="none", idle_timeout=None)
Agent("a", MODEL, early_stopping="generat")  # error: force or generate
Agent("a", MODEL, include_contents="all")  # error: default or none
Agent("a", MODEL, idle_timeout="never")  # error: seconds, None or runtime
Limits(max_steps=3, on_limit="halt")  # error: stop or generate
Limits(finish_reasons=["legnth"])  # error: no finish reason
HumanInTheLoop({"pay": True}, on_expiry="approve")  # error: reject or stop
Runtime(durability="fast")  # error: full, normal or off


async def ask(ref: AgentRef) -> None:
    await ref.run("hello", if_interrupted="withdraw")
    await ref.run("hello", if_interrupted="ignore")  # error: withdraw or error
    if ref.status() is Status.IDLE:
        pass
    if ref.status() == "idle":
        pass
    if ref.status() == Status.IDEL:  # error: no such status
        pass


def seen(event: events.Event) -> None:
    if event.kind == "tool_ended":
        if event.outcome == "denied":
            pass
        if event.outcome == "deneid":  # error: no such outcome
            pass
    if event.kind == "tool_endd":  # error: no such kind
        pass
    if isinstance(event, events.RunFinished) and event.outcome == "complted":  # error: no such
        pass
    if isinstance(event, events.AgentEnded) and event.outcome == "withdrawn":  # error: no such
        pass


def of_a_workflow(outcome: Completed) -> None:
    for result in outcome.results:
        if result.outcome == "faild":  # error: no such outcome
            pass
    for record in outcome.state.decisions:
        if record.decision.type == "aprove":  # error: no such decision
            pass
