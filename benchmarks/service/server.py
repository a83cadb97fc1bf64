"""The web app around a desk: `uvicorn --factory benchmarks.service.server:app`.

Its environment says which desk, which store, and on which port the model answers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from benchmarks.service.desk import load
from benchmarks.service.model import FakeModel
from benchmarks.service.workload import FINAL

__all__ = ["DESK", "MODEL_PORT", "STORE", "app"]

DESK, STORE, MODEL_PORT = "SERVICE_DESK", "SERVICE_STORE", "SERVICE_MODEL_PORT"
"""The variables of the environment."""


def app() -> FastAPI:
    """The app, as the environment says."""
    model = FakeModel(int(os.environ[MODEL_PORT]))
    desk = load(os.environ[DESK])(model)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with desk.opened(os.environ[STORE]):
            yield
        model.close()

    made = FastAPI(lifespan=lifespan)

    @made.post("/ask/{id}")
    async def ask(id: str) -> dict[str, str]:
        return {"request": await desk.ask(id)}

    @made.post("/approve/{id}/{request}")
    async def approve(id: str, request: str) -> dict[str, str]:
        text = await desk.approve(id, request)
        assert text == FINAL, f"{id} ended with {text!r}"
        return {"text": text}

    return made
