"""The type parameters of the public names: `Agent[Db, Invoice]`, `ToolContext[Db]`, and so on.

Each has the default `Any`, so that a bare `Agent` is an agent of any deps and output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import TypeVar

DepsT = TypeVar("DepsT", default=Any)
"""Of the `deps` that an application gives to a run."""
DepsT_co = TypeVar("DepsT_co", covariant=True, default=Any)
"""Of what gives `deps` out, such as a `ToolContext`."""
DepsT_contra = TypeVar("DepsT_contra", contravariant=True, default=Any)
"""Of what takes `deps` in, such as an `Agent`."""

OutputT = TypeVar("OutputT", default=Any)
"""Of an agent's `output_type`."""
OutputT_co = TypeVar("OutputT_co", covariant=True, default=Any)
"""Of what gives a value of the `output_type` out."""

FunctionT_co = TypeVar("FunctionT_co", covariant=True, default=Callable[..., Any])
"""Of a tool's function. Without a bound, so that mypy can infer a list of several tools."""
ValueT_co = TypeVar("ValueT_co", covariant=True, default=Any)
"""Of the value of a `ToolResult`."""
