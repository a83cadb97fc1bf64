"""The condition under which a step has something to do: otherwise the step is not called.

A step looks at the state before it acts, so calling it is never wrong. But most steps have nothing
to do in most turns, and to find that out in a coroutine takes 2 to 9 times as long as in a
function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from understudy.run.run import Run

Condition = Callable[[Run], bool]
"""Whether the step may do something now. Where it says no, the step would return None at once."""
StepT = TypeVar("StepT", bound=Callable[..., Any])

_CONDITIONS: dict[FunctionType, Condition] = {}
"""Conditions by step function. A function of an application around a step has none, so it is called
each time."""


def acts_if(condition: Condition) -> Callable[[StepT], StepT]:
    """Declare the condition under which the decorated step may do something."""

    def noted(step: StepT) -> StepT:
        assert isinstance(step, FunctionType), "steps of this library are functions"
        _CONDITIONS[step] = condition
        return step

    return noted


def condition_of(step: object) -> Condition | None:
    """The condition under which the step may do something; None if only the step knows."""
    return _CONDITIONS.get(step) if isinstance(step, FunctionType) else None
