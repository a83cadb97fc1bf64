"""No request to a real model in a test without a script: it is refused, and fails the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic_ai.models
import pytest
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.agents import completed
from tests.support.loops import SECONDS
from understudy import Agent, Failed, Runtime, ScriptedModel, UsageError
from understudy.testing import ModelFault, block_models, faults

pytest_plugins = ["pytester"]

REFUSED = (
    "Agent 'desk' would ask 'openai:gpt-5-mini', a real model, and this test blocks real models: "
    "give the agent a ScriptedModel with its replies, or replay a cassette"
)


class Asked(FunctionModel):
    """A model that does not look whether requests are allowed, and notes them."""

    def __init__(self) -> None:
        self.requests = 0
        super().__init__(self._said)

    def _said(self, _: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        self.requests += 1
        return ModelResponse(parts=[TextPart("Hello.")])


class Own(Model):
    """A model of a program, which asks who knows whom."""

    model_name = "own"
    system = "here"

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    async def request(self, *_: Any) -> ModelResponse:
        self.requests += 1
        return ModelResponse(parts=[TextPart("Hello.")])


class Played(Own):
    """A model that plays what was recorded, as a cassette does."""

    def __init__(self, *, records: bool) -> None:
        super().__init__()
        self.records = records

    @property
    def is_stand_in(self) -> bool:
        return not self.records


def real() -> Model:
    return OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(api_key="none"))


def failed(outcome: Any) -> str:
    assert isinstance(outcome, Failed), outcome
    return str(outcome.error)


def test_a_request_to_a_real_model_is_refused_and_fails_the_block() -> None:
    outcome: Any = None
    with pytest.raises(UsageError) as raised, block_models():
        outcome = Agent("desk", real()).execute_sync("Hi")
    assert str(raised.value) == REFUSED
    assert REFUSED in failed(outcome)


def test_an_error_of_the_test_says_which_request_was_refused() -> None:
    block = block_models()
    with pytest.raises(AttributeError) as raised, block:
        Agent("desk", real()).execute_sync("Hi").text.upper()  # type: ignore[union-attr]
    assert raised.value.__notes__[-1] == REFUSED
    assert block.refused == (REFUSED,)


def test_a_fallback_hides_no_request_that_was_refused() -> None:
    agent = Agent("desk", real(), fallback_models=[ScriptedModel(["Hello."])])
    with pytest.raises(UsageError, match="'openai:gpt-5-mini', a real model"), block_models():
        assert completed(agent.execute_sync("Hi")).text == "Hello."


def test_a_model_that_does_not_check_itself_is_refused_before_it_is_asked() -> None:
    own = Own()
    with pytest.raises(UsageError, match="would ask 'here:own', a real model"), block_models():
        Agent("desk", own).execute_sync("Hi")
    assert own.requests == 0


@pytest.mark.parametrize(
    "model",
    [
        ScriptedModel(lambda _: "Hello."),
        TestModel(custom_output_text="Hello."),
        Asked(),
        Played(records=False),
        WrapperModel(Asked()),
        WrapperModel(WrapperModel(Played(records=False))),
        FallbackModel(Asked(), TestModel(custom_output_text="Hello.")),
    ],
)
def test_what_stands_in_for_a_model_answers(model: Model) -> None:
    with block_models() as block:
        assert completed(Agent("desk", model).execute_sync("Hi")).text == "Hello."
    assert block.refused == ()


@pytest.mark.parametrize(
    "model",
    [
        Played(records=True),
        WrapperModel(Played(records=True)),
        FallbackModel(Asked(), Own()),
        WrapperModel(Own()),
    ],
)
def test_a_model_around_a_real_one_is_a_real_one(model: Model) -> None:
    with pytest.raises(UsageError, match="a real model"), block_models():
        Agent("desk", model).execute_sync("Hi")


def test_a_reply_that_a_fault_makes_up_asks_nobody() -> None:
    with block_models(), faults(model=ModelFault.refused()):
        assert "refused" in failed(Agent("desk", real()).execute_sync("Hi"))
    with (
        pytest.raises(UsageError, match="a real model"),
        block_models(),
        faults(model=ModelFault.answer_lost()),
    ):
        Agent("desk", real()).execute_sync("Hi")


def test_a_runtime_that_was_opened_before_is_blocked_too(tmp_path: Path) -> None:
    with Runtime([Agent("desk", real())], store=f"sqlite:///{tmp_path}/s.db") as runtime:
        ref = runtime.spawn("desk", "x")
        with pytest.raises(UsageError, match="Agent 'desk' would ask"), block_models():
            ref.run("Hi").get(timeout=SECONDS)


async def test_what_is_asked_without_an_agent_is_refused_by_pydantic_ai() -> None:
    with pytest.raises(RuntimeError, match="ALLOW_MODEL_REQUESTS is False"), block_models():
        await model_request(real(), [ModelRequest.user_text_prompt("Hi")])
    assert pydantic_ai.models.ALLOW_MODEL_REQUESTS is True


def test_behind_the_block_models_are_asked() -> None:
    own = Own()
    with block_models():
        pass
    assert completed(Agent("desk", own).execute_sync("Hi")).text == "Hello."
    assert own.requests == 1


async def test_a_decorated_test_is_blocked_at_each_call() -> None:
    @block_models()
    def asks() -> None:
        Agent("desk", Own()).execute_sync("Hi")

    @block_models()
    async def asks_on_a_loop() -> None:
        await Agent("desk", Own()).execute("Hi")

    for _ in range(2):
        with pytest.raises(UsageError, match="a real model"):
            await asks_on_a_loop()
    with pytest.raises(UsageError, match="a real model"):
        asks()


# ------------------------------------------------------------------------------- the plugin

TESTS = """
import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models import Model
from understudy import Agent, ScriptedModel

class Real(Model):
    model_name, system = "real", "somewhere"
    async def request(self, *_):
        return ModelResponse(parts=[TextPart("Hello.")])

def ask(model):
    return Agent("desk", model).execute_sync("Hi").text if model else None

def test_real():
    Agent("desk", Real()).execute_sync("Hi")

{mark}
def test_wanted({fixture}):
    Agent("desk", Real()).execute_sync("Hi")

def test_scripted({fixture}):
    assert ask(ScriptedModel(["Hello."])) == "Hello."
"""


def outcomes(
    pytester: pytest.Pytester, *, ini: str = "", mark: str = "", fixture: str = ""
) -> tuple[dict[str, int], str]:
    pytester.makepyfile(TESTS.format(mark=mark, fixture=fixture))
    pytester.makeini(f"[pytest]\naddopts = --strict-markers\n{ini}\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    return result.parseoutcomes(), result.stdout.str()


def test_nothing_is_blocked_where_nobody_asks_for_it(pytester: pytest.Pytester) -> None:
    assert outcomes(pytester)[0] == {"passed": 3}


@pytest.mark.slow
def test_the_fixture_blocks_the_tests_that_have_it(pytester: pytest.Pytester) -> None:
    found, said = outcomes(pytester, fixture="block_models")
    assert found == {"passed": 3, "errors": 1}
    assert "Agent 'desk' would ask 'somewhere:real', a real model" in said


@pytest.mark.slow
def test_an_option_of_the_file_blocks_all_tests(pytester: pytest.Pytester) -> None:
    found, _ = outcomes(pytester, ini="understudy_block_models = true")
    assert found == {"passed": 3, "errors": 2}


def test_a_test_that_is_marked_asks_real_models(pytester: pytest.Pytester) -> None:
    ini, mark = "understudy_block_models = true", "@pytest.mark.real_models"
    found, _ = outcomes(pytester, ini=ini, mark=mark)
    assert found == {"passed": 3, "errors": 1}


def test_the_fixture_is_used_by_its_name(pytester: pytest.Pytester) -> None:
    found, _ = outcomes(pytester, mark="@pytest.mark.usefixtures('block_models')")
    assert found == {"passed": 3, "errors": 1}
