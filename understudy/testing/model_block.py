"""`block_models`: refuses requests to real models in a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from pydantic_ai.models import Model, override_allow_model_requests
from pydantic_ai.models.wrapper import WrapperModel

from understudy.errors import UsageError
from understudy.testing import seams
from understudy.testing.block import Block

_STAND_INS = frozenset(
    {("pydantic_ai.models.test", "TestModel"), ("pydantic_ai.models.function", "FunctionModel")}
)
"""Models of Pydantic AI that ask no provider, by module and class. They need not be imported."""


def block_models() -> ModelBlock:
    """Refuse requests to real models in a `with` block, or while a decorated test runs.

    An agent that asks a real model gets an error that names the agent, the model and the remedy. No
    request is made. The run treats it as a failure of the model. So the block itself also raises,
    if it would end well although a request was refused.

    A model counts as real unless it is known as a stand-in: a `ScriptedModel`; Pydantic AI's
    `TestModel` and `FunctionModel`; or a model of your own whose attribute `is_stand_in` is true. A
    model that wraps other models counts as the models inside.

    Pydantic AI refuses requests that no agent of this library makes: the block sets its
    `ALLOW_MODEL_REQUESTS` to false. The block holds for the whole process: all its threads, and
    runtimes that were opened before.
    """
    return ModelBlock()


def is_stand_in(model: Model) -> bool:
    """Whether a model asks no provider."""
    for each in type(model).__mro__:
        if (each.__module__, each.__qualname__) in _STAND_INS:
            return True
    # The attribute is read from the class: a wrapper of Pydantic AI has the attributes of its inner
    # model.
    if hasattr(type(model), "is_stand_in"):
        return bool(getattr(model, "is_stand_in"))  # noqa: B009  # no model of Pydantic AI has it
    inside = tuple(_inside(model))
    return bool(inside) and all(is_stand_in(each) for each in inside)


def _inside(model: Model) -> Iterator[Model]:
    if isinstance(model, WrapperModel):
        yield model.wrapped
        return
    for each in getattr(model, "models", ()):  # of a `FallbackModel`
        if isinstance(each, Model):
            yield each


class ModelBlock(Block):
    """A block in which requests to real models are refused. A context manager, and a decorator."""

    def __init__(self) -> None:
        self._refused: list[str] = []
        self._lock = threading.Lock()

    @property
    def refused(self) -> tuple[str, ...]:
        """A sentence for each refused request, oldest first."""
        with self._lock:
            return tuple(self._refused)

    def _begin(self, stack: ExitStack) -> None:
        stack.enter_context(override_allow_model_requests(False))
        stack.enter_context(seams.MODEL_REQUEST.between(self._around_request))

    def _wrong(self) -> UsageError | None:
        refused = dict.fromkeys(self.refused)
        return UsageError("\n".join(refused)) if refused else None

    def _anew(self) -> ModelBlock:
        return ModelBlock()

    def _around_request(
        self, inner: Callable[..., Any], call: Any, model: Model, request: Any, parameters: Any
    ) -> Any:
        if is_stand_in(model):
            return inner(call, model, request, parameters)
        refusal = (
            f"Agent {call._run.definition.name!r} would ask {model.model_id!r}, a real model, and "
            "this test blocks real models: give the agent a ScriptedModel with its replies, or "
            "replay a cassette"
        )
        with self._lock:
            self._refused.append(refusal)
        raise UsageError(refusal)
