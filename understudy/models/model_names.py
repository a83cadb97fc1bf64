"""Finds the model of a name, and refreshes its client before a call."""

from __future__ import annotations

import difflib
import re

from pydantic_ai.models import Model, infer_model, known_model_names
from pydantic_ai.providers import infer_provider_class

from understudy.errors import UsageError

EXTRAS = ("anthropic", "google", "groq", "mistral", "openai")
"""The extras of this library that bring the client of a provider."""


def resolve_model(model: str | Model) -> Model:
    """Return the model with this name, with its provider's client loaded. A model object is
    returned as is.

    Raises:
        UsageError: if the name is unknown, its package is not installed, or its API key is not
            set.

    """
    if isinstance(model, Model):
        return model
    try:
        return infer_model(model)
    except (
        Exception
    ) as error:  # a provider's client may raise too, for instance without credentials
        ours = _reason(model, error)
        refusal = UsageError(f"Model {model!r} cannot be used: {ours or error}")
        raise refusal from (None if ours else error)


def _reason(name: str, error: Exception) -> str | None:
    """The fault and the remedy, if they are known: Pydantic AI's own text is about its agents.

    `tests/models/test_model_names.py` fails when they change.
    """
    provider, colon, model = name.partition(":")
    if not colon or not model.strip():
        return f"a name is 'provider:model', such as {_like(provider) or 'openai:gpt-5-mini'!r}"
    if not _is_provider(provider):
        near = difflib.get_close_matches(provider, _providers(), n=1)
        remedy = f"did you mean '{near[0]}:{model}'?" if near else f"some are {', '.join(EXTRAS)}"
        return f"there is no provider {provider!r}; {remedy}"
    text = str(error)
    extra = re.search(r"pydantic-ai-slim\[([\w-]+)\]", text)
    if isinstance(error.__cause__, ModuleNotFoundError) and extra is not None:
        package = "understudy" if extra[1] in EXTRAS else "pydantic-ai-slim"
        return f"its client is not installed: pip install '{package}[{extra[1]}]'"
    if variables := re.findall(r"`([A-Z][A-Z0-9_]+)`", text):
        wanted = " or ".join(dict.fromkeys(variables))
        return (
            f"{wanted} is not set in the environment. Set it, or give a model object of Pydantic "
            "AI that has what it needs; without a key, a ScriptedModel plays the model"
        )
    return None


def _is_provider(provider: str) -> bool:
    try:
        infer_provider_class(provider)
    except ValueError:
        return False
    except ImportError:  # the name is known, but its package is not installed
        pass
    return True


def _providers() -> list[str]:
    return list(dict.fromkeys(name.partition(":")[0] for name in known_model_names()))


def _like(model: str) -> str | None:
    """The whole name of a model that was given without its provider, or of a similar model."""
    provider, _, rest = re.sub(r"[/\s]+", ":", model, count=1).partition(":")
    if rest and provider in _providers():
        return f"{provider}:{rest}"
    # The first of several providers wins: it is the maker of the model.
    whole = {name.partition(":")[2]: name for name in reversed(known_model_names()) if ":" in name}
    near = difflib.get_close_matches(model, whole, n=1, cutoff=0.7)
    return whole[near[0]] if near else None


def refresh_client(model: Model) -> None:
    """Let the provider replace an HTTP client whose event loop is closed.

    Pydantic AI's agent calls this private method at the start of each run, too.
    `tests/test_contracts.py` fails when it changes.
    """
    model._refresh_http_client()
