"""For tests of your agents: hosts that are killed, services that fail, recorded replies."""

import typing

from understudy._base.lazy_names import load_lazily as _load_lazily

if typing.TYPE_CHECKING:
    from understudy.testing.cassettes import Cassette, CassetteMiss, RecordMode
    from understudy.testing.crashes import crash_points
    from understudy.testing.effects import Effect, Effects
    from understudy.testing.people import FakePeople
    from understudy.testing.remote import FakeRemote, Fault, StatusError
    from understudy.testing.replay_report import (
        ChangedCall,
        CostOf,
        Difference,
        NotReplayed,
        Replay,
    )
    from understudy.testing.replaying import replay
    from understudy.testing.story import Story, StoryFailed
    from understudy.testing.verdicts import (
        assert_asked,
        assert_denied,
        assert_rules_fit,
        assert_unasked,
    )
else:  # a test loads what it uses
    __getattr__, __dir__ = _load_lazily(
        __name__,
        {
            "understudy.testing.cassettes": ["Cassette", "CassetteMiss", "RecordMode"],
            "understudy.testing.crashes": ["crash_points"],
            "understudy.testing.effects": ["Effect", "Effects"],
            "understudy.testing.people": ["FakePeople"],
            "understudy.testing.remote": ["FakeRemote", "Fault", "StatusError"],
            "understudy.testing.replay_report": [
                "ChangedCall",
                "CostOf",
                "Difference",
                "NotReplayed",
                "Replay",
            ],
            "understudy.testing.replaying": ["replay"],
            "understudy.testing.story": ["Story", "StoryFailed"],
            "understudy.testing.verdicts": [
                "assert_asked",
                "assert_denied",
                "assert_rules_fit",
                "assert_unasked",
            ],
        },
    )

__all__ = [
    "Cassette",
    "CassetteMiss",
    "ChangedCall",
    "CostOf",
    "Difference",
    "Effect",
    "Effects",
    "FakePeople",
    "FakeRemote",
    "Fault",
    "NotReplayed",
    "RecordMode",
    "Replay",
    "StatusError",
    "Story",
    "StoryFailed",
    "assert_asked",
    "assert_denied",
    "assert_rules_fit",
    "assert_unasked",
    "crash_points",
    "replay",
]
