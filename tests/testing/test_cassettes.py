"""Cassettes: replies of models that are recorded once, and played from then on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from tests.support.agents import completed
from understudy import (
    Agent,
    Completed,
    Failed,
    Interrupted,
    Run,
    Runtime,
    ScriptedModel,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.errors import SchemaVersionError
from understudy.events import TextDelta
from understudy.middleware import Middleware, SubAgent
from understudy.modes import Sequential
from understudy.testing import Cassette, CassetteMiss, block_models

ROOT = Path(__file__).parents[2]


@tool
def look(order: str) -> str:
    """Look an order up."""
    return f"{order} is paid"


def real(*replies: Any) -> ScriptedModel:
    """The model that a recording asks."""
    return ScriptedModel(list(replies) or [call("look", {"order": "A1"}), "It is paid."])


def desk(model: Any = "openai:scripted", instructions: str = "You look.") -> Agent[Any, Any]:
    """By default its model cannot be asked: there is no key."""
    return Agent("desk", model, instructions, tools=[look])


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider can be asked, and the mode is the default one."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("UNDERSTUDY_RECORD", raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "desk.json"


def recorded(path: Path, agent: Agent[Any, Any] | None = None, input: str = "A1?") -> None:
    with Cassette(path, "once") as cassette:
        completed(cassette.agent(agent or desk(real())).execute_sync(input))


def played(path: Path, agent: Agent[Any, Any], *inputs: str, **options: Any) -> list[str]:
    """A test that looks at no outcome: what the runs have said."""
    with Cassette(path, **options) as cassette:
        runs = [cassette.agent(agent).execute_sync(input) for input in inputs]
        return [run.text if isinstance(run, Completed) else type(run).__name__ for run in runs]


def files(path: Path) -> list[str]:
    return [each.name for each in path.parent.iterdir()]


# ---------------------------------------------------------------------------- modes


def test_what_is_recorded_once_is_played_without_a_key(path: Path) -> None:
    recorded(path)
    with Cassette(path) as cassette:
        assert completed(cassette.agent(desk()).execute_sync("A1?")).text == "It is paid."


def test_a_cassette_that_plays_asks_no_real_model_and_that_records_does(path: Path) -> None:
    recorded(path)
    with block_models(), Cassette(path) as cassette:
        assert completed(cassette.agent(desk()).execute_sync("A1?")).text == "It is paid."
    hosted = Hosted(["It is paid."])
    recording = Cassette(path.with_name("other.json"), "once")
    with pytest.raises(UsageError, match="a real model"), block_models(), recording as cassette:
        cassette.agent(desk(hosted)).execute_sync("A1?")
    assert hosted.requests == []


class Hosted(ScriptedModel):
    """A model that counts as one of a provider."""

    is_stand_in = False


def test_once_asks_nobody_where_there_is_a_file(path: Path) -> None:
    recorded(path)
    again = real()
    with Cassette(path, "once") as cassette:
        completed(cassette.agent(desk(again)).execute_sync("A1?"))
    assert again.requests == []
    with pytest.raises(CassetteMiss):
        played(path, desk(again), "B2?", record="once")
    assert again.requests == []


def test_new_asks_for_what_is_missing_alone(path: Path) -> None:
    recorded(path)
    model = real("B2 is not paid.")
    with Cassette(path, "new") as cassette:
        agent = cassette.agent(desk(model))
        completed(agent.execute_sync("A1?"))
        assert completed(agent.execute_sync("B2?")).text == "B2 is not paid."
    assert len(model.requests) == 1
    with Cassette(path) as cassette:
        agent = cassette.agent(desk())
        assert completed(agent.execute_sync("B2?")).text == "B2 is not paid."
        assert completed(agent.execute_sync("A1?")).text == "It is paid."


def test_all_records_anew_and_forgets_what_was_not_asked(path: Path) -> None:
    recorded(path)
    with Cassette(path, "all") as cassette:
        completed(cassette.agent(desk(real("Other."))).execute_sync("A1?"))
    with Cassette(path) as cassette:
        assert completed(cassette.agent(desk()).execute_sync("A1?")).text == "Other."
    assert "A1 is paid" not in path.read_text()


def test_none_is_the_default_and_the_environment_says_another_mode(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Cassette(path).mode == "none"
    monkeypatch.setenv("UNDERSTUDY_RECORD", "new")
    assert (Cassette(path).mode, Cassette(path, "once").mode) == ("new", "once")
    monkeypatch.setenv("UNDERSTUDY_RECORD", "always")
    with pytest.raises(UsageError, match=r"none, once, new, all .* got 'always'"):
        Cassette(path)


def test_a_recording_without_a_key_is_refused_before_anything_runs(path: Path) -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        played(path, desk(), "A1?", record="once")
    assert not path.exists()


# ---------------------------------------------------------------------------- misses


def test_a_miss_fails_with_a_difference(path: Path) -> None:
    recorded(path)
    with pytest.raises(CassetteMiss) as raised:  # also where nobody looks at the outcome
        played(path, desk(instructions="You look closely."), "A1?")
    text = str(raised.value)
    assert "-instructions: You look.\n" in text
    assert "+instructions: You look closely.\n" in text
    assert "reply 1 of 2" in text
    assert "UNDERSTUDY_RECORD=new" in text


def test_a_miss_is_compared_with_the_nearest_request(path: Path) -> None:
    with Cassette(path, "once") as cassette:
        agent = cassette.agent(desk(real("One.", "Two.")))
        agent.execute_sync("Where is the parcel?")
        agent.execute_sync("Is order A1 paid?")
    with pytest.raises(CassetteMiss) as raised:
        played(path, desk(), "Is order B2 paid?")
    assert "-user-prompt: Is order A1 paid?" in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tools": []}, "-tool look: "),
        ({"model_settings": {"temperature": 0.5}}, '+settings: {"temperature": 0.5}'),
        ({"model": "openai:other"}, "+model: other"),
        ({"output_type": int, "output_mode": "native"}, "+output: "),
    ],
)
def test_what_a_request_has_besides_its_messages_counts(
    path: Path, changed: dict[str, Any], said: str
) -> None:
    recorded(path)
    options = {"model": "openai:scripted", "instructions": "You look.", "tools": [look], **changed}
    with pytest.raises(CassetteMiss) as raised:
        played(path, Agent("desk", **options), "A1?")
    assert said in str(raised.value)


def test_a_reply_is_played_once(path: Path) -> None:
    recorded(path, desk(real("One.")))
    assert played(path, desk(), "A1?") == ["One."]
    with pytest.raises(CassetteMiss, match="was played already"):
        played(path, desk(), "A1?", "A1?")


def test_equal_requests_get_their_replies_in_order(path: Path) -> None:
    with Cassette(path, "once") as cassette:
        agent = cassette.agent(desk(real("One.", "Two.")))
        for _ in range(2):
            agent.execute_sync("A1?")
    with Cassette(path) as cassette:
        agent = cassette.agent(desk())
        said = [completed(agent.execute_sync("A1?")).text for _ in range(2)]
    assert said == ["One.", "Two."]


def test_a_miss_is_a_note_of_the_error_that_the_test_raises(path: Path) -> None:
    recorded(path)

    def failing() -> None:
        with Cassette(path) as cassette:
            outcome = cassette.agent(desk()).execute_sync("B2?")
            assert isinstance(outcome, Completed), "not completed"

    with pytest.raises(AssertionError) as raised:
        failing()
    assert "not completed" in str(raised.value)
    assert "+user-prompt: B2?" in raised.value.__notes__[0]


def test_without_a_file_a_miss_says_how_to_record(path: Path) -> None:
    with pytest.raises(CassetteMiss, match="no such file") as raised:
        played(path, desk(), "A1?")
    assert "UNDERSTUDY_RECORD=once" in str(raised.value)


# ---------------------------------------------------------------------------- what is kept


def test_details_of_the_provider_are_not_kept(path: Path) -> None:
    """By a list of what is kept: what is new with a provider is not, either."""
    reply = ModelResponse(
        parts=[
            ThinkingPart("Hm.", signature="c2ln", provider_details={"h": "planted-1"}),
            TextPart("Hello.", provider_details={"trace": "planted-2"}),
        ],
        usage=RequestUsage(input_tokens=3, output_tokens=2, details={"planted-3": 1}),
        model_name="scripted",
        provider_url="https://planted-4.example",
        provider_details={"headers": {"authorization": "planted-5"}},
        provider_response_id="planted-6",
        metadata={"planted": "planted-7"},
    )
    recorded(path, desk(ScriptedModel([reply])))
    assert "planted" not in path.read_text()
    with Cassette(path) as cassette:
        outcome = completed(cassette.agent(desk()).execute_sync("A1?"))
    assert (outcome.text, outcome.usage.input_tokens) == ("Hello.", 3)


def test_headers_among_the_settings_are_not_kept(path: Path) -> None:
    settings: Any = {"temperature": 0, "extra_headers": {"x-key": "planted"}}
    agent = Agent("desk", real("Hi."), model_settings=settings)
    recorded(path, agent)
    assert "planted" not in path.read_text()
    assert '"temperature": 0' in path.read_text()


def _hides(where: tuple[str | int, ...], value: Any) -> Any:
    return value.replace("ann@example.com", "<mail>") if isinstance(value, str) else value


def test_what_is_redacted_is_not_kept_and_is_found_again(path: Path) -> None:
    model = real("Written to ann@example.com.")
    with Cassette(path, "once", redact=_hides) as cassette:
        completed(cassette.agent(desk(model)).execute_sync("Write to ann@example.com"))
    assert "ann@example.com" not in path.read_text()
    with Cassette(path, redact=_hides) as cassette:
        outcome = completed(cassette.agent(desk()).execute_sync("Write to ann@example.com"))
    assert outcome.text == "Written to <mail>."


@pytest.mark.parametrize("secret", ["s3cret-value", SecretStr("s3cret-value")])
def test_a_secret_is_an_error_and_nothing_is_written(path: Path, secret: Any) -> None:
    recorded(path)
    before = path.read_bytes()
    cassette = Cassette(path, "new")
    cassette.keep_out(secret, name="the planted password")
    completed(cassette.agent(desk(real("It is s3cret-value."))).execute_sync("Password?"))
    with pytest.raises(UsageError) as raised:
        cassette.close()
    assert "the planted password is in what a model" in str(raised.value)
    assert "s3cret-value" not in str(raised.value)
    assert path.read_bytes() == before
    assert files(path) == [path.name]


def test_a_secret_of_the_environment_is_kept_out_without_a_word(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "key-0123456789")
    monkeypatch.setenv("SHOP_NAME", "the shop of Ann")
    with pytest.raises(UsageError, match="SHOP_API_KEY"):
        recorded(path, desk(real("ok")), "Use key-0123456789, please")
    assert not path.exists()
    recorded(path, desk(real("ok")), "Greet the shop of Ann")
    assert path.exists()


def test_a_secret_in_the_arguments_of_a_call_is_found(path: Path) -> None:
    """A model may write them as a text of JSON, in which a quote is escaped."""
    arguments = json.dumps({"order": 'pass"word'})
    model = ScriptedModel(
        [ModelResponse(parts=[ToolCallPart("look", arguments, "1")]), "It is paid."]
    )
    cassette = Cassette(path, "once")
    cassette.keep_out('pass"word')
    completed(cassette.agent(desk(model)).execute_sync("A1?"))
    with pytest.raises(UsageError, match="at conversations"):
        cassette.close()


def test_a_failed_test_keeps_what_the_model_has_said(path: Path) -> None:
    with suppress(ZeroDivisionError), Cassette(path, "once") as cassette:
        completed(cassette.agent(desk(real())).execute_sync("A1?"))
        _ = 1 / 0
    with Cassette(path) as cassette:
        completed(cassette.agent(desk()).execute_sync("A1?"))


def test_an_error_of_the_model_is_not_kept(path: Path) -> None:
    with Cassette(path, "once") as cassette:
        outcome = cassette.agent(desk(real(ConnectionError("away")))).execute_sync("A1?")
    assert isinstance(outcome, Failed)
    assert not path.exists()


def test_two_tests_never_write_one_file(path: Path) -> None:
    second = Cassette(path, "once")
    completed(second.agent(desk(real("Second."))).execute_sync("A1?"))
    recorded(path, desk(real("First.")))
    with pytest.raises(UsageError, match="a file of its own"):
        second.close()
    assert "First." in path.read_text()
    second = Cassette(path, "new")
    completed(second.agent(desk(real("Second."))).execute_sync("B2?"))
    played(path, desk(real("Third.")), "C3?", record="new")
    with pytest.raises(UsageError, match="a file of its own"):
        second.close()
    assert "Third." in path.read_text()
    assert "Second." not in path.read_text()
    assert files(path) == [path.name]


def test_a_message_of_a_conversation_is_in_the_file_once(path: Path) -> None:
    turns = [call("look", {"order": f"A{number}"}) for number in range(10)]
    recorded(path, desk(real(*turns, "Done.")), "All of them?")
    assert path.read_text().count("All of them?") == 1
    (conversation,) = json.loads(path.read_text())["conversations"]
    assert conversation["replies"] == list(range(1, 22, 2))


def test_the_file_is_the_same_each_time(path: Path, tmp_path: Path) -> None:
    recorded(path)
    recorded(tmp_path / "other.json")
    assert path.read_text() == (tmp_path / "other.json").read_text()


# ---------------------------------------------------------------------------- bad files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ('{"cassette_version": 1, "conver', "cannot be read"),
        ("[]", "neither a cassette nor an exported agent"),
        ('{"cassette_version": 1}', "is damaged"),
        (
            '{"cassette_version": 1, "conversations": [{"context": {}, "replies": [3], '
            '"messages": []}]}',
            "is damaged",
        ),
        (
            '{"cassette_version": 1, "conversations": [{"context": {}, "replies": [0], '
            '"messages": [{"kind": "response", "parts": 3}]}]}',
            "is damaged",
        ),
    ],
)
def test_a_file_that_is_none_is_refused(path: Path, text: str, said: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as raised:
        Cassette(path)
    assert str(path) in str(raised.value)


def test_a_file_of_another_version_is_refused_and_recorded_anew_by_all(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"cassette_version": 2, "library": "9.0"}')
    with pytest.raises(SchemaVersionError, match="upgrade understudy"):
        Cassette(path)
    with Cassette(path, "all") as cassette:
        completed(cassette.agent(desk(real())).execute_sync("A1?"))
    assert Cassette(path).mode == "none"


# ---------------------------------------------------------------------------- agents of all kinds


async def test_a_reply_is_streamed_when_it_is_recorded_and_when_it_is_played(path: Path) -> None:
    async def streamed(cassette: Cassette, agent: Agent[Any, Any]) -> str:
        text = ""
        async for event in cassette.agent(agent).stream("A1?"):
            text += event.text if isinstance(event, TextDelta) else ""
        return text

    with Cassette(path, "once") as cassette:
        assert await streamed(cassette, desk(real())) == "It is paid."
    with Cassette(path) as cassette:
        assert await streamed(cassette, desk()) == "It is paid."
    with Cassette(path) as cassette:  # and the other way, too
        assert completed(await cassette.agent(desk()).execute("A1?")).text == "It is paid."


async def test_a_stream_that_breaks_is_not_kept(path: Path) -> None:
    broken = real(["It is", ConnectionError("away")])
    with Cassette(path, "once") as cassette:
        async for _ in cassette.agent(desk(broken)).stream("A1?"):
            pass
    assert not cassette.path.exists()


def test_the_agents_inside_play_too(path: Path) -> None:
    """Those of a task, those that a tool runs by an object, and those of a workflow."""

    def whole(model: Any) -> Agent[Any, Any]:
        inner = Agent("inner", model("inner"), tools=[look])
        other = Agent("other", model("other"))

        @tool
        async def ask_other(ctx: ToolContext) -> str:
            """Ask the other one."""
            return completed(await ctx.run_agent(other, "well?")).text

        delegates = SubAgent([inner], general_purpose=False)
        outer = Agent("outer", model("outer"), tools=[ask_other], middleware=[delegates])
        last = Agent("last", model("last"))
        return Agent("desk", mode=Sequential([outer, last]))

    task = call("task", {"task_name": "inner", "instructions": "go"})
    replies: dict[str, list[Any]] = {
        "inner": [call("look", {"order": "A1"}), "Inner."],
        "other": ["Other."],
        "outer": [[task, call("ask_other")], "Outer."],
        "last": ["Last."],
    }
    recorded(path, whole(lambda name: ScriptedModel(replies[name], name=name)))
    with Cassette(path) as cassette:
        agent = cassette.agent(whole(lambda name: f"openai:{name}"))
        assert completed(agent.execute_sync("A1?")).text == "Last."


def test_a_model_that_a_hook_asks_plays_too(path: Path) -> None:
    class Asks(Middleware[Any]):
        def __init__(self, model: Any) -> None:
            self._model = model

        async def on_run_start(self, run: Run) -> None:
            said.append(await run.ask_model("sum", "Summarise", self._model))

    said: list[str] = []
    other = ScriptedModel(["short"], name="small")
    recorded(path, Agent("desk", real("Hi."), middleware=[Asks(other)]))
    with Cassette(path) as cassette:
        agent = Agent("desk", "openai:scripted", middleware=[Asks("openai:small")])
        completed(cassette.agent(agent).execute_sync("A1?"))
    assert said == ["short", "short"]


def test_a_runtime_and_a_person_beside_it(path: Path) -> None:
    def agent(model: Any) -> Agent[Any, Any]:
        return Agent("desk", model, tools=[look], interrupt_on={"look": True})

    for mode, model in (("once", real()), ("none", "openai:scripted")):
        with Cassette(path, mode) as cassette, _runtime(cassette.agent(agent(model))) as runtime:  # type: ignore[arg-type]
            ref = runtime.spawn("desk", id="t")
            outcome = ref.run("A1?").get()
            assert isinstance(outcome, Interrupted)
            decided = dict.fromkeys(outcome.requests, approve())
            assert completed(ref.resume(decided).get()).text == "It is paid."


def _runtime(agent: Agent[Any, Any]) -> Runtime:
    return Runtime([agent], store="memory:")


def test_an_export_of_a_real_run_is_a_cassette(path: Path) -> None:
    """It has the conversations; what a request has besides is not in it, and is not compared."""
    with _runtime(desk(real())) as runtime:
        completed(runtime.spawn("desk", id="t").run("A1?").get())
        export = runtime.export("t").get()
    path.parent.mkdir()
    path.write_text(json.dumps(export))
    with Cassette(path) as cassette:
        changed = desk(instructions="Other instructions.")
        assert completed(cassette.agent(changed).execute_sync("A1?")).text == "It is paid."
    with pytest.raises(CassetteMiss) as raised:
        played(path, desk(), "B2?")
    assert "+user-prompt: B2?" in str(raised.value)
    assert "instructions" not in str(raised.value)


def test_calls_without_ids_of_a_provider_are_found_again(path: Path) -> None:
    """Ids that the library makes are others in each run."""
    model = ScriptedModel(
        [ModelResponse(parts=[ToolCallPart("look", {"order": "A1"}, tool_call_id="")]), "Paid."]
    )
    recorded(path, desk(model))
    with Cassette(path) as cassette:
        assert completed(cassette.agent(desk()).execute_sync("A1?")).text == "Paid."


def test_what_is_no_agent_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="takes an Agent"):
        Cassette(path).agent("desk")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- the plugin

TESTS = """
import pytest
from understudy import Agent, ScriptedModel, Completed

def desk():
    return Agent("desk", ScriptedModel(lambda request: f"Said: {request.prompt}", name="m"))

@pytest.mark.parametrize("given", ["a/b", "a:b", "plain"])
def test_sync(cassette, given):
    assert cassette.agent(desk()).execute_sync(given).text == f"Said: {given}"

@pytest.mark.anyio
async def test_async(cassette):
    assert (await cassette.agent(desk()).execute("hello")).text == "Said: hello"

class TestInside:
    def test_sync(self, cassette):
        cassette.agent(desk()).execute_sync("inside")

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )


@pytest.mark.slow
def test_the_plugin_gives_each_test_a_file_of_its_own(tmp_path: Path) -> None:
    """Also under xdist, and whatever a parameter is named."""
    (tmp_path / "test_desk.py").write_text(TESTS)
    assert _pytest(tmp_path).returncode == 1
    done = _pytest(tmp_path, "--understudy-record=once", "-n", "2")
    assert done.returncode == 0, done.stdout
    names = files(tmp_path / "cassettes" / "any")
    assert len(names) == 5
    assert "test_desk.TestInside.test_sync.json" in names
    assert _pytest(tmp_path).returncode == 0


@pytest.mark.slow
def test_the_plugin_fails_a_test_that_does_not_look_at_its_outcome(tmp_path: Path) -> None:
    """It is a failure of the test, with the difference, and no error of a fixture."""
    (tmp_path / "test_desk.py").write_text(TESTS)
    _pytest(tmp_path, "--understudy-record=once")
    (tmp_path / "test_desk.py").write_text(TESTS.replace('"inside"', '"within"'))
    done = _pytest(tmp_path)
    assert done.returncode == 1
    assert "1 failed, 4 passed" in done.stdout
    assert "+user-prompt: within" in done.stdout
    assert "--understudy-record=new" in done.stdout
