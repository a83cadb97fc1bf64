"""A cache of model replies: what was asked before is answered at no cost, also tomorrow."""

import hashlib
import sqlite3
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from understudy import Agent, Completed, Run, ScriptedModel, call, tool
from understudy.middleware import Middleware, ModelInput, NextModelCall
from understudy.models import ScriptedReply, ScriptedRequest

NOT_ASKED = {"timestamp", "usage", "cost", "run_id", "conversation_id", "provider_response_id"}
"""What is another each time and says nothing of the question."""


# 1. Where replies are kept. Here a table; a dict would do for one process.
class Replies:
    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply)")

    def get(self, key: str) -> ModelResponse | None:
        query = "SELECT reply FROM replies WHERE key = ?"
        row = self._database.execute(query, (key,)).fetchone()
        if row is None:
            return None
        (reply,) = ModelMessagesTypeAdapter.validate_json(row[0])
        assert isinstance(reply, ModelResponse)
        return reply

    def put(self, key: str, reply: ModelResponse) -> None:
        row = key, ModelMessagesTypeAdapter.dump_json([reply])
        self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", row)
        self._database.commit()

    def close(self) -> None:
        self._database.close()


# 2. The middleware. It is around the whole model call, with its retries and fallbacks: only a
#    reply that the run takes is kept, and an error never is.
class ReplyCache(Middleware):
    stream_safe = True
    wraps_ask_model = True
    """It also answers what is asked by `run.ask_model`."""

    def __init__(self, replies: Replies) -> None:
        self.replies = replies

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        key = self._key(run, request)
        known = self.replies.get(key)
        if known is not None:
            return replace(known, usage=RequestUsage())  # it costs nothing this time
        reply = await next(request)
        self.replies.put(key, reply)
        return reply

    # 3. All that the model is told: a change of instructions or tools is another question.
    def _key(self, run: Run, request: ModelInput) -> str:
        model = run.models[0] if request.model is None else request.model
        told = ModelMessagesTypeAdapter.dump_python(list(request.messages), mode="json")
        asked = {
            "model": model.model_name,
            "instructions": request.instructions,
            "tools": [tool.definition for tool in request.tools],
            "settings": request.settings,
            "messages": [_without_times(message) for message in told],
        }
        return hashlib.sha256(to_json(asked, fallback=repr)).hexdigest()


def _without_times(told: object) -> object:
    if isinstance(told, dict):
        return {key: _without_times(value) for key, value in told.items() if key not in NOT_ASKED}
    if isinstance(told, list):
        return [_without_times(item) for item in told]
    return told


@tool
def price(of: str) -> str:
    """The price of something."""
    return "39 euros"


def main() -> None:
    with TemporaryDirectory() as folder:
        # 4. Two processes, one after the other: only what is recorded in the table is shared.
        for question in ("What is a kettle?", "What is a kettle?", "What is a teapot?"):
            replies = Replies(Path(folder) / "replies.db")
            model = ScriptedModel(_reply)
            agent = Agent("clerk", model, tools=[price], middleware=[ReplyCache(replies)])
            outcome = agent.execute_sync(question)
            assert isinstance(outcome, Completed), outcome
            asked, tokens = len(model.requests), outcome.usage.total_tokens
            print(f"{question} {outcome.text} (the model was asked {asked} times, {tokens} tokens)")
            replies.close()


def _reply(request: ScriptedRequest) -> ScriptedReply:
    is_first = len(request.messages) == 1
    return call("price", {"of": "it"}) if is_first else "It costs 39 euros."


if __name__ == "__main__":
    main()
