"""`Inject`: functions that fill in the arguments that a model does not write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.tools.context import ToolContext

Inject = Mapping[str, Callable[[ToolContext[Any]], Any]]
"""Plain functions that make an argument from the context of a call, by the argument's name."""
