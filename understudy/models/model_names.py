"""The model of a name, and what a model needs before a call."""

from __future__ import annotations

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model

from understudy.errors import UsageError


def resolve_model(model: str | Model) -> Model:
    """The model of this name, with its provider's client loaded; a model object as it is.

    Raises:
        UsageError: if the name is unknown, its package not installed, or its API key not set.

    """
    if isinstance(model, Model):
        return model
    try:
        return infer_model(model)
    except (UserError, ImportError, ValueError) as error:
        raise UsageError(f"Model {model!r} cannot be used: {error}") from error


def refresh_client(model: Model) -> None:
    """Let the provider replace an HTTP client whose event loop is closed.

    Pydantic AI's agent calls this private method at the start of each run, too.
    `tests/test_contracts.py` fails when it changes.
    """
    model._refresh_http_client()
