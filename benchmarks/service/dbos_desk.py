"""The support agent on Pydantic AI, made durable by DBOS.

A conversation is a workflow; model calls and tools are its steps. It tells its request by an event
and gets the decision by a message, as in DBOS's own example of an inbox for agents.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.durable_exec.dbos import DBOSDurability

from benchmarks.service.desk import Desk
from benchmarks.service.pydantic_model import PydanticModel
from benchmarks.service.workload import INSTRUCTIONS, PROMPT, found, paid

__all__ = ["DESK"]

PATIENCE = 120
"""Seconds to wait for a request, at most."""


@DBOS.step(name="look")  # type: ignore[untyped-decorator]  # rivals are read as untyped
async def look(order: str) -> dict[str, str | int]:
    """Look up an order."""
    return found(order)


@DBOS.step(name="pay")  # type: ignore[untyped-decorator]  # as above
async def pay(order: str) -> str:
    """Pay money back."""
    return paid(order)


class PydanticDbos(Desk):
    """Each conversation is a workflow."""

    @asynccontextmanager
    async def opened(self, store: str) -> AsyncIterator[None]:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": store,
                "log_level": "ERROR",
                "run_admin_server": False,
                "enable_otlp": False,
                "executor_id": str(os.getpid()),
            }
        )
        self._flow = self._workflow()
        self._handles: dict[str, Any] = {}
        DBOS.launch()
        yield
        DBOS.destroy()

    def _workflow(self) -> Any:
        agent = Agent(
            PydanticModel(self.model),
            instructions=INSTRUCTIONS,
            output_type=[str, DeferredToolRequests],
            name="desk",
            capabilities=[DBOSDurability()],
            tools=[look],
        )
        agent.tool_plain(requires_approval=True)(pay)

        @DBOS.workflow(name="flow")  # type: ignore[untyped-decorator]  # as above
        async def flow(prompt: str) -> str:
            result = await agent.run(prompt)
            if not isinstance(result.output, DeferredToolRequests):
                return result.output
            asked = [call.tool_call_id for call in result.output.approvals]
            await DBOS.set_event_async("pending", asked)
            decision = await DBOS.recv_async("decision", timeout_seconds=3600)
            given = DeferredToolResults(approvals=dict.fromkeys(asked, bool(decision)))
            result = await agent.run(
                message_history=result.all_messages(), deferred_tool_results=given
            )
            return str(result.output)

        return flow

    async def ask(self, id: str) -> str:
        with SetWorkflowID(id):
            self._handles[id] = await DBOS.start_workflow_async(self._flow, PROMPT)
        asked = await DBOS.get_event_async(id, "pending", PATIENCE)
        return str(asked[0])

    async def approve(self, id: str, request: str) -> str:
        await DBOS.send_async(id, True, "decision")
        handle = self._handles.pop(id, None) or await DBOS.retrieve_workflow_async(id)
        return str(await handle.get_result())


DESK = PydanticDbos
