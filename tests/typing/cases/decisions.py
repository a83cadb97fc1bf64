"""What `resume` takes: decisions by request, by its id, and one alone."""

from __future__ import annotations

from understudy import Agent, Interrupted, Runtime, ScriptedModel, approve, reject


async def decide(runtime: Runtime, outcome: Interrupted) -> None:
    desk = Agent("desk", ScriptedModel([]))
    ref = runtime.spawn(desk)
    request = outcome.requests[0]
    await ref.resume(approve(by="ann"))
    await ref.resume({request: approve()})
    await ref.resume({request.id: {"type": "approve"}})
    await ref.decide(request.decide(reject("no")))
    for pending in await runtime.pending():
        await ref.resume(pending.decide(approve()))
    await desk.resume(outcome.state, {request: reject()})
    await desk.resume(outcome.state, outcome.decide(approve()))
    await ref.resume(request)  # error: no decision
    await ref.resume({request: "approve"})  # error: no decision
    await ref.resume({3: approve()})  # error: no request
