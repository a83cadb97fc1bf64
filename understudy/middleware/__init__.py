"""Middleware: one concern a module, wrapped around an agent's model and tool calls."""

from understudy.middleware.base import Middleware, Next, Prepared
from understudy.middleware.human_in_the_loop import HumanInTheLoop

__all__ = ["HumanInTheLoop", "Middleware", "Next", "Prepared"]
