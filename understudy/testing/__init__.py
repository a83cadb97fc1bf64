"""For tests of agents: a service that fails as it is told, recorded replies, replays, people."""

from understudy.testing.bank import Bank, Fault, StatusError
from understudy.testing.cassettes import Cassette, CassetteMiss, RecordMode
from understudy.testing.effects import Effect, Effects
from understudy.testing.people import FakePeople
from understudy.testing.replay_report import Replay
from understudy.testing.replaying import replay
from understudy.testing.verdicts import (
    assert_asked,
    assert_denied,
    assert_rules_fit,
    assert_unasked,
)

__all__ = [
    "Bank",
    "Cassette",
    "CassetteMiss",
    "Effect",
    "Effects",
    "FakePeople",
    "Fault",
    "RecordMode",
    "Replay",
    "StatusError",
    "assert_asked",
    "assert_denied",
    "assert_rules_fit",
    "assert_unasked",
    "replay",
]
