"""For tests of your agents: faults, a service that fails as it is told, a count of effects, people.

What a test does not import costs it nothing.
"""

import typing

from understudy._base.lazy_names import load_lazily as _load_lazily

if typing.TYPE_CHECKING:
    from understudy.testing.bank import Bank, Fault, StatusError
    from understudy.testing.effects import Effect, Effects
    from understudy.testing.faulty_backend import FaultyBackend
    from understudy.testing.model_block import ModelBlock, block_models
    from understudy.testing.model_faults import ModelFault
    from understudy.testing.people import FakePeople
    from understudy.testing.planned_faults import PlannedFaults, faults
    from understudy.testing.store_faults import StoreFault
    from understudy.testing.tool_faults import ToolFault
    from understudy.testing.verdicts import (
        assert_asked,
        assert_denied,
        assert_rules_fit,
        assert_unasked,
    )
else:
    __getattr__, __dir__ = _load_lazily(
        __name__,
        {
            "understudy.testing.bank": ["Bank", "Fault", "StatusError"],
            "understudy.testing.effects": ["Effect", "Effects"],
            "understudy.testing.faulty_backend": ["FaultyBackend"],
            "understudy.testing.model_block": ["ModelBlock", "block_models"],
            "understudy.testing.model_faults": ["ModelFault"],
            "understudy.testing.people": ["FakePeople"],
            "understudy.testing.planned_faults": ["PlannedFaults", "faults"],
            "understudy.testing.store_faults": ["StoreFault"],
            "understudy.testing.tool_faults": ["ToolFault"],
            "understudy.testing.verdicts": [
                *("assert_asked", "assert_denied", "assert_rules_fit", "assert_unasked"),
            ],
        },
    )

__all__ = [
    "Bank",
    "Effect",
    "Effects",
    "FakePeople",
    "Fault",
    "FaultyBackend",
    "ModelBlock",
    "ModelFault",
    "PlannedFaults",
    "StatusError",
    "StoreFault",
    "ToolFault",
    "assert_asked",
    "assert_denied",
    "assert_rules_fit",
    "assert_unasked",
    "block_models",
    "faults",
]
