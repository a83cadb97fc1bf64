"""Agents at servers that people run, each by the form of what it was recorded to send."""

from __future__ import annotations

import json

import pytest

from tests.support.agents import calls_made, completed, reloaded, results
from tests.support.wire import servers
from tests.support.wire.providers import OPENAI_CHAT, OPENAI_RESPONSES, run
from tests.support.wire.script import HttpError, RawBody, Reply
from tests.support.wire.server import WireServer
from tests.support.wire.servers import (
    BEDROCK,
    BEDROCK_STREAM,
    OLLAMA,
    SAID,
    SERVERS,
    VLLM,
    Server,
)
from understudy import Failed
from understudy.events import TextDelta
from understudy.models.model_names import resolve_model


def look(order: str) -> str:
    """Look at an order."""
    return f"order {order} is paid"


@pytest.mark.parametrize("server", SERVERS, ids=str)
async def test_a_server_calls_a_tool_and_gets_its_result(server: Server) -> None:
    if server in (BEDROCK, BEDROCK_STREAM):
        pytest.importorskip("boto3")
    with WireServer([server.calls(), server.says(), server.says()]) as at:
        way = "stream" if server.streams else "execute"
        told = await run(way, server.build(at), tools=[look])  # type: ignore[arg-type]
        state = reloaded(told.outcome.state)
        again = await run(way, server.build(at), tools=[look], state=state)  # type: ignore[arg-type]
    assert completed(told.outcome).text == SAID
    (made,) = calls_made(told.outcome.state)
    assert made.args == {"order": "17"}
    assert [part.content for part in results(told.outcome.state)] == ["order 17 is paid"]
    assert "order 17 is paid" in json.dumps(at.requests[1])
    assert at.paths == [server.path] * 3
    assert completed(again.outcome).text == SAID
    bits = [each.text for each in again.events if isinstance(each, TextDelta)]
    assert "".join(bits) == (SAID if server.streams else "")
    assert (len(bits) > 1) is server.streams


async def test_a_server_without_the_responses_api_is_told_by_its_url_and_the_remedy() -> None:
    with WireServer([]) as at:
        model = OPENAI_RESPONSES.build(at, "llama3.2", {})
        model.provider.client.base_url = f"{at.url}/elsewhere"  # type: ignore[union-attr]
        told = await run("execute", model)
        assert isinstance(told.outcome, Failed)
        assert f"{at.url}/elsewhere/responses was asked" in told.outcome.explain()
    assert "name the model 'openai-chat:llama3.2'" in told.outcome.explain()


async def test_a_wrong_address_is_named_without_what_is_secret_in_it() -> None:
    missing = HttpError(status=404, message="not here")
    with WireServer([missing]) as at:
        model = OPENAI_CHAT.build(at, "llama3.2", {})
        address = at.base_url.replace("://", "://ann:hush@")
        model.provider.client.base_url = address  # type: ignore[union-attr]
        told = await run("execute", model)
        assert isinstance(told.outcome, Failed)
        assert f"{at.base_url}/chat/completions was asked: check the" in told.outcome.explain()
    assert "hush" not in told.outcome.explain()
    assert "often ends with /v1" in told.outcome.explain()


@pytest.mark.parametrize(
    ("server", "error", "words"),
    [
        (OLLAMA, servers.ollama_missing("qwen2.5-coder"), "try pulling it first"),
        (VLLM, servers.vllm_error("The model `x` does not exist.", 404), "does not exist"),
        (
            VLLM,
            servers.vllm_error(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to '
                "be set",
                400,
            ),
            "--enable-auto-tool-choice",
        ),
    ],
    ids=["ollama", "vllm", "vllm without tools"],
)
async def test_what_a_server_says_is_wrong_is_told(
    server: Server, error: RawBody, words: str
) -> None:
    with WireServer([error]) as at:
        told = await run("execute", server.build(at), tools=[look])
    assert isinstance(told.outcome, Failed)
    assert words in told.outcome.explain()
    assert ("/v1/chat/completions was asked" in told.outcome.explain()) is (error.status == 404)


@pytest.mark.parametrize(
    ("name", "variable", "path"),
    [
        ("openai-chat:llama3.2", "OPENAI_BASE_URL", "/v1/chat/completions"),
        ("openai:llama3.2", "OPENAI_BASE_URL", "/v1/responses"),
        ("ollama:llama3.2", "OLLAMA_BASE_URL", "/v1/chat/completions"),
    ],
)
async def test_a_name_and_a_variable_are_enough(
    name: str, variable: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WireServer([Reply(text="Yes.")]) as at:
        monkeypatch.setenv(variable, at.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        told = await run("execute", resolve_model(name))
    assert completed(told.outcome).text == "Yes."
    assert at.paths == [path]
