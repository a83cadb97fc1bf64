"""Models and messages: all that touches Pydantic AI's own layer.

Any model of Pydantic AI serves, by its name or as an object; `ScriptedModel` is the one for tests.
"""

from understudy.models.model_names import resolve_model
from understudy.models.scripted_model import ScriptedModel, ScriptedRequest, ScriptExhausted, call

__all__ = ["ScriptExhausted", "ScriptedModel", "ScriptedRequest", "call", "resolve_model"]
