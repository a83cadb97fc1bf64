"""`Inject`: what fills in the arguments that a model does not write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.tools.context import ToolContext

Inject = Mapping[str, Callable[[ToolContext[Any]], Any]]
"""By the name of an argument: a plain function that makes it, of the context of a call."""
