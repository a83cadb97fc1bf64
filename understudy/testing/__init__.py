"""For tests of your agents: a service that fails as it is told, a count of what it did, people."""

from understudy.testing.bank import Bank, Fault, StatusError
from understudy.testing.effects import Effect, Effects
from understudy.testing.people import FakePeople
from understudy.testing.verdicts import (
    assert_asked,
    assert_denied,
    assert_rules_fit,
    assert_unasked,
)

__all__ = [
    "Bank",
    "Effect",
    "Effects",
    "FakePeople",
    "Fault",
    "StatusError",
    "assert_asked",
    "assert_denied",
    "assert_rules_fit",
    "assert_unasked",
]
