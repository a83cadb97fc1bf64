"""For tests of your agents: a service that fails as it is told, and a count of what it did."""

from understudy.testing.bank import Bank, Fault, StatusError
from understudy.testing.effects import Effect, Effects

__all__ = ["Bank", "Effect", "Effects", "Fault", "StatusError"]
