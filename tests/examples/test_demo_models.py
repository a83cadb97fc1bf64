"""Which model the demos choose, and what they say of it."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from examples.demo_models import choose_model
from understudy import ScriptedModel, UsageError


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the modules that count as installed; a test may add some."""
    names: set[str] = set()

    def find_spec(name: str, package: str | None = None) -> Any:
        return object() if name in names else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return names


def test_the_provider_whose_key_is_set_and_whose_package_is_there_plays(
    installed: set[str],
) -> None:
    installed.add("anthropic")
    choice = choose_model({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})

    assert str(choice.model).startswith("anthropic:")
    assert "ANTHROPIC_API_KEY is set" in choice.line


def test_a_key_without_its_package_says_what_to_install(installed: set[str]) -> None:
    choice = choose_model({"GEMINI_API_KEY": "k"})

    assert isinstance(choice.model, ScriptedModel)
    assert choice.line.startswith("GEMINI_API_KEY is set, but its package is missing")
    assert "understudy[google]" in choice.line
    assert "scripted model plays the part" in choice.line


def test_an_empty_key_is_no_key(installed: set[str]) -> None:
    installed.add("openai")
    choice = choose_model({"OPENAI_API_KEY": "", "MODEL": " "})

    assert choice.line.startswith("No API key is set")


def test_what_model_says_wins_over_keys(installed: set[str]) -> None:
    installed.add("openai")
    keys = {"OPENAI_API_KEY": "k"}

    assert isinstance(choose_model({**keys, "MODEL": "scripted"}).model, ScriptedModel)
    assert choose_model({**keys, "MODEL": "groq:some-model"}).model == "groq:some-model"


def test_a_local_model_that_is_not_installed_says_how_to_get_it(installed: set[str]) -> None:
    with pytest.raises(UsageError, match="make local"):
        choose_model({"MODEL": "local"})
