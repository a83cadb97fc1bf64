"""A provider that is down for a while: the models that ask it then fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelResponse

from understudy import Failed, Outcome, ScriptedModel
from understudy.models import ScriptedRequest

__all__ = ["Outage", "failed"]


class Outage:
    """Models fail in the turns that say so, as long as it lasts."""

    def __init__(self) -> None:
        self.lasts = True

    def until_over(self, reply: Any) -> _Late:
        """A turn that fails until the outage is over, and then brings this reply."""
        return _Late(reply)

    def model(self, *turns: Any) -> ScriptedModel:
        """A model as `by_turn` makes it: it keeps no count of its own."""

        def reply(request: ScriptedRequest) -> Any:
            turn = sum(isinstance(message, ModelResponse) for message in request.messages)
            said = turns[turn] if turn < len(turns) else "done"
            if not isinstance(said, _Late):
                return said
            if self.lasts:
                raise ConnectionError("the provider is down")
            return said.reply

        return ScriptedModel(reply)


@dataclass(frozen=True)
class _Late:
    reply: Any


def failed(outcome: Outcome) -> Failed:
    """The outcome, which must be a run that failed."""
    assert isinstance(outcome, Failed), outcome
    return outcome
