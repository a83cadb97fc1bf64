"""Agents of Pydantic AI as agents of this library. Nothing here is imported before the first one.

Pydantic AI keeps what it is good at: its tools, toolsets, outputs and capabilities do what they do.
They get a `RunContext` that is made for each step. When they are called, and what is recorded of
it, is decided by the pipeline here: Pydantic AI's own graph does not run.
"""

from understudy.adopted.options import adopted_options

__all__ = ["adopted_options"]
