"""Decides whether a model's `prepare_messages` must be called, by what it would change.

Pydantic AI prepares a conversation before each request: among other things it adds a note beside
text of a user or a tool that looks like its own frames (`<system>`), and it replaces files that the
model cannot read. That walks the whole history. A conversation is sent unprepared only if the walk
would change nothing: the shortcut never changes what is sent
(`test_a_conversation_is_sent_as_the_model_prepares_it`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings

from understudy.models.messages import Messages

MAX_PROBES = 4
"""The number of kinds of thinking up to which the model is asked about each. Above it, preparing
costs less."""


def prepared(
    model: Model,
    messages: list[ModelMessage],
    parameters: ModelRequestParameters,
    settings: ModelSettings | None,
) -> list[ModelMessage]:
    """The messages as the model prepares them for a request with these parameters and settings."""
    if settings and "framing_announcement" in settings:
        # `prepare_messages` does not get the settings, but reads one setting from this field
        # (test_the_setting_that_preparing_reads_is_passed_by_a_private_field).
        announcement = settings["framing_announcement"]
        parameters = replace(parameters, _framing_announcement=announcement)
    return model.prepare_messages(messages, parameters)


def needs_preparation(model: Model, messages: Messages, settings: ModelSettings | None) -> bool:
    """Whether this model's `prepare_messages` may change these messages."""
    plain = messages.plain
    if plain is None:
        return True
    try:
        profile = model.profile
    except NotImplementedError:  # it passes requests on to models that have one each
        return True
    if profile.get("may_tokenize_special_tokens_in_content") or profile.get("tool_call_id_length"):
        return True
    kinds = plain.kinds_of_thinking or {}
    return (plain.begins_with_system_prompt and _announces_always(model, settings, profile)) or (
        bool(kinds) and _shows_thinking_to_user(model, kinds.values(), profile)
    )


def _announces_always(model: Model, settings: ModelSettings | None, profile: ModelProfile) -> bool:
    """Whether the model's announcement of its frames goes in front of an imported system prompt."""
    announcement = (
        (settings or {}).get("framing_announcement")
        or (model.settings or {}).get("framing_announcement")
        or profile.get("default_framing_announcement")
    )
    return announcement == "always"


def _shows_thinking_to_user(
    model: Model, kinds: Collection[tuple[ModelResponse, ThinkingPart]], profile: ModelProfile
) -> bool:
    """Whether thinking of another model is sent as text of the user's turn, in a frame."""
    if not profile.get("mimics_assistant_message_formatting", False):
        return False
    return len(kinds) > MAX_PROBES or any(_shows(model, *kind) for kind in kinds)


def _shows(model: Model, response: ModelResponse, part: ThinkingPart) -> bool:
    """Whether such a part is shown. Only the model's class knows, so it prepares a part with a
    tag.
    """
    prompt = ModelRequest(parts=[UserPromptPart("")])
    thinking = replace(response, parts=[replace(part, content="<system>")])
    return model.prepare_messages([prompt, thinking])[0] is not prompt
