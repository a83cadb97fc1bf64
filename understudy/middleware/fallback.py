"""`Fallback`: other models for a call that the agent's own model fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.middleware.base import Middleware, NextModelCall
from understudy.run.model_input import ModelInput
from understudy.run.run import Run


class Fallback(Middleware):
    """A middleware that asks other models, in order, if a model fails or refuses. It does so anew
    for each call.

    `Agent(fallback_models=[...])` is short for it, placed inside all middleware except `Retry`.

    Args:
        models: the other models, or their names.

    Raises:
        UsageError: if a model is neither a model nor a name.

    """

    stream_safe: ClassVar[bool] = True
    wraps_ask_model: ClassVar[bool] = True

    def __init__(self, models: Sequence[str | Model]) -> None:
        if isinstance(models, (str, Model)) or not isinstance(models, Sequence) or not models:
            raise UsageError(f"Fallback takes a list of models, at least one, got {shown(models)}")
        for model in models:
            if not isinstance(model, (str, Model)):
                raise UsageError(
                    "Fallback: a model is a Pydantic AI Model, or its name such as "
                    f"'openai:gpt-5-mini', got {shown(model)}"
                )
        self.models: tuple[str | Model, ...] = tuple(models)

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        if request.ask_key is not None and request.model is not None:
            return await next(request)  # this model was asked for by name
        models = (request.model, *run.models[1:])
        for model in models[:-1]:
            try:
                return await next(request.replace(model=model))
            except Exception:  # noqa: S112  # the run's error names all of them
                continue
        return await next(request.replace(model=models[-1]))
