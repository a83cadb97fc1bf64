"""A model's name that cannot be used: the error names the culprit and the remedy in our words."""

from __future__ import annotations

import sys
import tomllib
import traceback
from pathlib import Path

import pytest

from understudy import Agent, Runtime, UsageError
from understudy.models import resolve_model
from understudy.models.model_names import EXTRAS

ROOT = Path(__file__).parents[2]
FOREIGN = ("pydantic-ai-slim", "Provider(", "Agent('test')", "pydantic.dev", "optional group")
"""What stands in Pydantic AI's own errors, and is of no use to a reader of ours."""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "DEEPSEEK_API_KEY", "VERCEL_AI_GATEWAY_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def said(name: str) -> str:
    with pytest.raises(UsageError) as raised:
        resolve_model(name)
    text = str(raised.value)
    assert repr(name) in text
    shown = "".join(traceback.format_exception(raised.value))
    assert not any(foreign in shown for foreign in FOREIGN), shown
    return text


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("opnai:gpt-5", "no provider 'opnai'; did you mean 'openai:gpt-5'?"),
        ("antropic:claude-haiku-4-5", "did you mean 'anthropic:claude-haiku-4-5'?"),
        ("nonsense:model", "no provider 'nonsense'; some are anthropic, google"),
        (":model", "no provider ''; some are"),
        (":", "a name is 'provider:model', such as 'openai:gpt-5-mini'"),
        ("openai/gpt-5", "a name is 'provider:model', such as 'openai:gpt-5'"),
        ("openai gpt-5", "a name is 'provider:model', such as 'openai:gpt-5'"),
        ("claude-haiku", "such as 'anthropic:claude-haiku-"),
        ("no-such-model", "a name is 'provider:model', such as 'openai:gpt-5-mini'"),
        ("openai:", "a name is 'provider:model'"),
        ("openai: ", "a name is 'provider:model'"),
    ],
)
def test_an_unknown_name_says_what_a_name_is_and_which_was_meant(name: str, remedy: str) -> None:
    assert remedy in said(name)


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY is not set"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY is not set"),
        ("vercel:some-model", "VERCEL_AI_GATEWAY_API_KEY or VERCEL_OIDC_TOKEN is not set"),
    ],
)
def test_a_missing_key_is_named_with_what_needs_none(name: str, variables: str) -> None:
    text = said(name)
    assert variables in text
    assert "ScriptedModel" in text


@pytest.mark.parametrize(
    ("name", "package", "remedy"),
    [
        ("anthropic:claude-haiku-4-5", "anthropic", "pip install 'understudy[anthropic]'"),
        ("openai:gpt-5-mini", "openai", "pip install 'understudy[openai]'"),
    ],
)
def test_a_client_that_is_not_installed_is_named_with_our_extra(
    name: str, package: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_installed(package, monkeypatch)
    assert remedy in said(name)


def test_a_client_that_is_no_extra_of_ours_is_named_with_that_of_pydantic_ai(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    not_installed("cohere", monkeypatch)
    with pytest.raises(UsageError, match=r"pip install 'pydantic-ai-slim\[cohere\]'$"):
        resolve_model("cohere:command-r")


@pytest.mark.slow
def test_whatever_a_provider_raises_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's cloud without credentials raises an error of a library of its own."""

    class NoCredentials(Exception):
        pass

    def refuses(name: str) -> None:
        raise NoCredentials("Your default credentials were not found.")

    monkeypatch.setattr("understudy.models.model_names.infer_model", refuses)
    with pytest.raises(UsageError, match=r"^Model 'google-cloud:gemini-3-pro' cannot") as raised:
        resolve_model("google-cloud:gemini-3-pro")
    assert "default credentials were not found" in str(raised.value)
    assert isinstance(raised.value.__cause__, NoCredentials)


def not_installed(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in list(sys.modules):
        of_provider = module.startswith("pydantic_ai.") and module.split(".")[-1] == package
        if of_provider or module.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("how", ["execute_sync", "ref"])
def test_the_error_reaches_the_caller_before_anything_runs(how: str) -> None:
    agent = Agent("a", "opnai:gpt-5")

    def run() -> None:
        if how == "execute_sync":
            agent.execute_sync("go")
        else:
            with Runtime([agent]) as runtime:
                runtime.spawn("a").run("go").get(timeout=60)

    with pytest.raises(UsageError, match="did you mean 'openai:gpt-5'"):
        run()


def test_the_extras_that_errors_name_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = project["optional-dependencies"]
    assert {name for name, needs in ours.items() if needs == [f"pydantic-ai-slim[{name}]"]} == {
        *EXTRAS,
        "mcp",  # brings no model
    }
