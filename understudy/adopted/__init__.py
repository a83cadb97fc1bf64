"""Agents of Pydantic AI as agents of this library. Nothing here is imported before the first one.

Tools, toolsets, outputs and capabilities of Pydantic AI work as they do there, with a `RunContext`
that is made for each step. The pipeline here decides when they are called and what is recorded:
Pydantic AI's own graph does not run.
"""

from understudy.adopted.options import adopted_options

__all__ = ["adopted_options"]
