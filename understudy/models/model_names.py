"""Which model a name means, and what a model needs of us beside its own interface."""

from __future__ import annotations

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model

from understudy.errors import UsageError


def resolve_model(model: str | Model) -> Model:
    """The model of this name, with its provider's client loaded.

    Raises:
        UsageError: if the name is unknown, its package is not installed or its API key not set.

    """
    if isinstance(model, Model):
        return model
    try:
        return infer_model(model)
    except (UserError, ImportError, ValueError) as error:
        raise UsageError(f"Model {model!r} cannot be used: {error}") from error


def refresh_client(model: Model) -> None:
    """Let the provider replace an HTTP client that belongs to an event loop that is gone.

    Pydantic AI's own agent does this at the start of each run, by the same name, which is private:
    `tests/test_contracts.py` fails when it changes.
    """
    model._refresh_http_client()


def needs_preparation(model: Model) -> bool:
    """Whether this model must prepare even plain messages: its ids are short, or its tokens loose.

    Preparing walks the whole history, so a model that does not need it is spared.
    """
    profile = model.profile
    return bool(
        profile.get("may_tokenize_special_tokens_in_content", False)
        or profile.get("tool_call_id_length")
    )
