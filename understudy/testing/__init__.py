"""For tests of your agents: hosts that are killed, faults, services, people, recorded replies."""

import typing

from understudy._base.lazy_names import load_lazily as _load_lazily

if typing.TYPE_CHECKING:
    from understudy.testing.cassettes import Cassette, CassetteMiss, RecordMode
    from understudy.testing.contracts import (
        BackendContract,
        Contract,
        Judgement,
        MiddlewareContract,
        StoreContract,
        Violation,
        judge,
    )
    from understudy.testing.crashes import crash_points
    from understudy.testing.effects import Effect, Effects
    from understudy.testing.faulty_backend import FaultyBackend
    from understudy.testing.machine import AgentMachine
    from understudy.testing.model_block import ModelBlock, block_models
    from understudy.testing.model_faults import ModelFault
    from understudy.testing.people import FakePeople
    from understudy.testing.planned_faults import PlannedFaults, faults
    from understudy.testing.remote import FakeRemote, Fault, StatusError
    from understudy.testing.replay_report import (
        ChangedCall,
        CostOf,
        Difference,
        NotReplayed,
        Replay,
    )
    from understudy.testing.replaying import replay
    from understudy.testing.store_faults import StoreFault
    from understudy.testing.stored_runs import Finding, OldJournal, old_journals
    from understudy.testing.story import Story, StoryFailed
    from understudy.testing.tool_faults import ToolFault
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
            "understudy.testing.contracts": [
                *("BackendContract", "Contract", "Judgement", "MiddlewareContract"),
                *("StoreContract", "Violation", "judge"),
            ],
            "understudy.testing.effects": ["Effect", "Effects"],
            "understudy.testing.faulty_backend": ["FaultyBackend"],
            "understudy.testing.model_block": ["ModelBlock", "block_models"],
            "understudy.testing.model_faults": ["ModelFault"],
            "understudy.testing.machine": ["AgentMachine"],
            "understudy.testing.stored_runs": ["Finding", "OldJournal", "old_journals"],
            "understudy.testing.people": ["FakePeople"],
            "understudy.testing.planned_faults": ["PlannedFaults", "faults"],
            "understudy.testing.remote": ["FakeRemote", "Fault", "StatusError"],
            "understudy.testing.store_faults": ["StoreFault"],
            "understudy.testing.replay_report": [
                "ChangedCall",
                "CostOf",
                "Difference",
                "NotReplayed",
                "Replay",
            ],
            "understudy.testing.replaying": ["replay"],
            "understudy.testing.story": ["Story", "StoryFailed"],
            "understudy.testing.tool_faults": ["ToolFault"],
            "understudy.testing.verdicts": [
                "assert_asked",
                "assert_denied",
                "assert_rules_fit",
                "assert_unasked",
            ],
        },
    )

__all__ = [
    "AgentMachine",
    "BackendContract",
    "Cassette",
    "CassetteMiss",
    "ChangedCall",
    "Contract",
    "CostOf",
    "Difference",
    "Effect",
    "Effects",
    "FakePeople",
    "FakeRemote",
    "Fault",
    "FaultyBackend",
    "Finding",
    "Judgement",
    "MiddlewareContract",
    "ModelBlock",
    "ModelFault",
    "NotReplayed",
    "OldJournal",
    "PlannedFaults",
    "RecordMode",
    "Replay",
    "StatusError",
    "StoreContract",
    "StoreFault",
    "Story",
    "StoryFailed",
    "ToolFault",
    "Violation",
    "assert_asked",
    "assert_denied",
    "assert_rules_fit",
    "assert_unasked",
    "block_models",
    "crash_points",
    "faults",
    "judge",
    "old_journals",
    "replay",
]
