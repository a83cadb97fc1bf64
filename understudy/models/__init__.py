"""Models and messages: everything on top of Pydantic AI's model layer.

An agent takes any model of Pydantic AI, by its name or as an object. `ScriptedModel` is for tests.
"""

from understudy.models.model_names import resolve_model
from understudy.models.scripted_model import (
    ScriptedModel,
    ScriptedPiece,
    ScriptedReply,
    ScriptedRequest,
    ScriptExhausted,
    call,
)

__all__ = [
    "ScriptExhausted",
    "ScriptedModel",
    "ScriptedPiece",
    "ScriptedReply",
    "ScriptedRequest",
    "call",
    "resolve_model",
]
