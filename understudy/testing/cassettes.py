"""`Cassette`: the replies of real models, recorded once and played in each test from then on."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args
from weakref import WeakValueDictionary

import pydantic
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings

from understudy._base.json_values import as_json, checked_text, digest, reason, shown
from understudy._base.secrets_in_urls import is_secret_option
from understudy._base.type_variables import DepsT, OutputT_co
from understudy.agent.agent import Agent
from understudy.errors import UsageError
from understudy.models import ScriptedModel, resolve_model
from understudy.models.preparation import prepared
from understudy.run.definition import AgentDefinition
from understudy.run.run import Run
from understudy.testing.altered import AlteredRuns, StandIn, altered_agent
from understudy.testing.cassette_files import (
    Exchange,
    difference,
    kept_message,
    nearest,
    read,
    request_lines,
    written,
)
from understudy.testing.model_block import is_stand_in

RecordMode = Literal["none", "once", "new", "all"]
"""What a cassette records.

- `none`: nothing. Each request must be in the file.
- `once`: everything, if there is no file yet.
- `new`: what is missing.
- `all`: everything, again.
"""
Redactor = Callable[[tuple[str | int, ...], Any], Any]
"""A function of the path and the value of kept data. It returns the value to keep instead."""
VARIABLE = "UNDERSTUDY_RECORD"
"""The environment variable for the mode, if the test sets none. Without it the mode is `none`."""
SHORTEST_SECRET = 8
"""The minimum characters of a secret: a shorter value is in too many texts by chance."""
_ALSO_SECRET = re.compile(r"(^|_)(API_?)?KEY(_|$)|AUTH|DSN", re.IGNORECASE)
_OUT_OF_NAMES = re.compile(r"[^\w.-]+")


class CassetteMiss(AssertionError):
    """A request to a model is not in the cassette. The text shows how the nearest request
    differs.
    """


class Cassette:
    """A file with replies of real models. It plays the replies in tests, and records them.

    `cassette.agent(desk)` is the agent with models that play. If nothing is recorded, no real model
    is made, so no API key is needed. The fixture `cassette` of the pytest plugin gives each test
    its own cassette with its own file.

    ```python
    async def asks_a_person(cassette):
        outcome = await cassette.agent(desk).execute("Refund order 17")
        assert isinstance(outcome, Interrupted)
    ```

    Args:
        path: the path of the file. It may be an export of an agent, made by `runtime.export` or
            `understudy export`. Then requests are compared by their messages alone.
        record: the mode; None = as in `--understudy-record`, or in `UNDERSTUDY_RECORD`. By
            default it is `"none"`, also outside of CI, so nobody pays for a model by accident.
        redact: hides values that must not be kept, as `redact=` of the pages. It gets a path,
            such as `("messages", 0, "parts", 0, "content")` or `("context", "instructions")`,
            and the value. Requests also pass through it before they are compared.
        remedy: how to record a missing request, for the text of a miss.

    Raises:
        UsageError: if the mode is unknown, or the file is damaged or not a cassette.
        SchemaVersionError: if the file has another format.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        record: RecordMode | None = None,
        *,
        redact: Redactor | None = None,
        remedy: str = "set UNDERSTUDY_RECORD=new and run the test",
    ) -> None:
        self.path: Path = Path(path)
        """The path of the file."""
        given = os.environ.get(VARIABLE, "none") if record is None else record
        if given not in get_args(RecordMode):
            raise UsageError(
                f"a cassette records {', '.join(get_args(RecordMode))} (--understudy-record), got "
                f"{shown(given)}"
            )
        self.mode: RecordMode = cast("RecordMode", given)
        """The mode of the recording."""
        self._remedy = remedy
        self._seen = _seen_by(redact, "Cassette(redact=...)")
        self._secrets: dict[str, str] = dict(_secrets_of_environment())
        self._found = self._read_bytes()
        self._exchanges: list[Exchange] = []
        if self._found is not None and self.mode != "all":
            self._exchanges = read(self.path)
        self.records: bool = self.mode in ("new", "all") or (
            self.mode == "once" and self._found is None
        )
        """Whether a missing request is sent to the real model and recorded."""
        self._recorded = False
        self._asked = 0
        self._misses: list[CassetteMiss] = []
        self._models: WeakValueDictionary[Any, CassetteModel] = WeakValueDictionary()
        self._runs = _PlayedRuns(self)

    # ---------------------------------------------------------------------------- for tests

    def agent(self, agent: Agent[DepsT, OutputT_co]) -> Agent[DepsT, OutputT_co]:
        """Return the agent with models that play, also in the agents that it runs.

        Raises:
            UsageError: if a model must be asked to record everything, and cannot be asked.

        """
        if not isinstance(agent, Agent):
            raise UsageError(f"cassette.agent(...) takes an Agent, got {shown(agent)}")
        return altered_agent(agent, self._runs)

    def redact(self, redact: Redactor) -> None:
        """Set the function that hides what must not be kept, as the option `redact` of the
        class.
        """
        self._seen = _seen_by(redact, "cassette.redact(...)")

    def keep_out(
        self, *values: str | pydantic.SecretStr, name: str = "a value to be kept out"
    ) -> None:
        """Refuse to write the file if one of these values is in it.

        The values of environment variables with secret names (`KEY`, `TOKEN`, `PASSWORD` and the
        like) are always kept out if they have at least 8 characters.

        Args:
            values: texts, or Pydantic's `SecretStr`.
            name: the name of the values in the error.

        """
        for value in values:
            text = value.get_secret_value() if isinstance(value, pydantic.SecretStr) else value
            self._secrets[checked_text(text, what="keep_out(...)")] = name

    def check(self) -> None:
        """Raise the first miss, if there was a miss. A miss is raised once.

        Raises:
            CassetteMiss: if a request was not in the cassette.

        """
        misses, self._misses = self._misses, []
        if misses:
            raise misses[0]

    def explain(self, error: BaseException) -> None:
        """Add the first miss as a note to an error of the test."""
        misses, self._misses = self._misses, []
        if misses and misses[0] is not error:
            error.add_note(str(misses[0]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.explain(error)
        self.close()
        if error is None:
            self.check()

    def close(self) -> None:
        """Write what was recorded, even if the test failed.

        Raises:
            UsageError: if a secret is in it, or another test has written the file meanwhile.
                The file is not changed.

        """
        if not self._recorded:
            return
        self._recorded = False
        kept = [each for each in self._exchanges if each.played or self.mode != "all"]
        data = written(kept)
        self._refuse_secrets(data)
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        try:
            # Race: two tests have the same path. The second does not overwrite what it has not read
            # (test_two_tests_never_write_one_file).
            if self._read_bytes() != self._found:
                raise UsageError(
                    f"another test has written the cassette {self.path} meanwhile: give each test "
                    "a file of its own"
                )
            if self._found is None:
                try:
                    os.link(part, self.path)
                except FileExistsError:
                    raise UsageError(
                        f"another test has written the cassette {self.path} meanwhile: give each "
                        "test a file of its own"
                    ) from None
            else:
                part.replace(self.path)
        finally:
            part.unlink(missing_ok=True)
        self._found = self._read_bytes()

    # ------------------------------------------------------------------------- for its models

    def model(self, model: str | Model) -> CassetteModel:
        """Return a model that plays in place of a model or its name, for code that asks a model
        directly.
        """
        key = model if isinstance(model, str) else id(model)
        found = self._models.get(key)
        if found is None:
            found = self._models[key] = CassetteModel(self, model)
        return found

    def request(self, context: Mapping[str, Any], messages: list[ModelMessage]) -> Exchange:
        """Return a request in the form in which it would be kept, without its reply."""
        data = {"context": context, "messages": [kept_message(each) for each in messages]}
        seen = self._seen(data)
        return Exchange(seen["context"], seen["messages"], {})

    def take(self, asked: Exchange) -> ModelResponse | None:
        """Return the recorded reply to this request; None if it is to be recorded.

        Raises:
            CassetteMiss: if there is no reply, and none is recorded.

        """
        self._asked += 1
        bare = digest(request_lines(None, asked.messages))
        for each in self._exchanges:
            if not each.played and each.key == (bare if each.context is None else asked.key):
                each.played = True
                return each.response
        if self.records:
            return None
        miss = CassetteMiss(self._why_missing(asked))
        self._misses.append(miss)
        raise miss

    def keep(self, asked: Exchange, reply: ModelResponse) -> None:
        """Record the reply to a request that was sent now."""
        kept = self._seen({"reply": kept_message(reply)})["reply"]
        self._exchanges.append(Exchange(asked.context, asked.messages, kept, played=True))
        self._recorded = True

    def _why_missing(self, asked: Exchange) -> str:
        what = f"request {self._asked} of this test is not in the cassette {self.path}"
        if self._found is None:
            return (
                f"{what}: there is no such file. Record it: {self._remedy.replace('=new', '=once')}"
            )
        again = f"Record what is missing: {self._remedy}"
        at = nearest(self._exchanges, asked.lines)
        if at is None:
            return f"{what}, which is empty. {again}"
        closest = self._exchanges[at]
        where = f"reply {at + 1} of {len(self._exchanges)}"
        found = difference(closest, asked.lines)
        if not found:
            return (
                f"{what} once more: {where} is for the same request, and was played already. "
                f"{again}"
            )
        return f"{what}. The nearest request there has {where}:\n{found}\n{again}"

    def _read_bytes(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"the cassette {self.path} cannot be read: {reason(error)}") from error

    def _refuse_secrets(self, data: Mapping[str, Any]) -> None:
        texts = list(_texts(data, ()))
        for secret, name in self._secrets.items():
            for path, text in texts:
                if secret in text:
                    place = ".".join(map(str, path))
                    raise UsageError(
                        f"the cassette {self.path} is not written: {name} is in what a model was "
                        f"asked or has said, at {place}. Hide it, by cassette.redact(...), or keep "
                        "it out of the conversation"
                    )


def cassette_of(request: Any) -> Cassette:
    """The cassette of a test, by its pytest `request`: a file for each test and its parameters.

    It is in the folder `cassettes` beside the module of the test.
    """
    node = request.node
    name = str(node.nodeid).replace("\\", "/").rpartition("/")[2]
    file = _OUT_OF_NAMES.sub("_", name.replace(".py::", ".").replace("::", ".")).strip("_")
    if file != name.replace(".py::", ".").replace("::", ".") or len(file) > 120:
        # This separates tests whose parameters differ only in characters that a file name cannot
        # have.
        file = f"{file[:120]}-{digest(name)[:8]}"
    return Cassette(
        Path(node.path).parent / "cassettes" / f"{file}.json",
        remedy=f"pytest --understudy-record=new {json.dumps(node.nodeid)}",
    )


class _PlayedRuns(AlteredRuns):
    """Runs whose models play, also models that a middleware asks beside the conversation."""

    def __init__(self, cassette: Cassette) -> None:
        super().__init__(self._played)
        self._cassette = cassette

    def _played(self, definition: AgentDefinition) -> AgentDefinition:
        model, others = definition.model, definition.fallback_models
        return replace(
            definition,
            model=None if model is None else self._cassette.model(model),
            fallback_models=tuple(self._cassette.model(each) for each in others),
        )

    async def ask_model(
        self, run: Run, key: str, messages: Any, model: Any, output_type: Any
    ) -> Any:
        if isinstance(model, (str, Model)) and model and not isinstance(model, CassetteModel):
            model = self._cassette.model(model)
        return await super().ask_model(run, key, messages, model, output_type)


class CassetteModel(StandIn):
    """A model that plays from a cassette. To record, it asks the model for which it stands.

    Args:
        cassette: the cassette with the replies.
        model: the model, or its name.

    """

    def __init__(self, cassette: Cassette, model: str | Model) -> None:
        super().__init__(model)
        self._cassette = cassette
        self._real: Model | None = model if isinstance(model, Model) else None
        if cassette.records and cassette.mode != "new":
            self._real = resolve_model(model)  # fail at once if there is no API key

    @property
    def is_stand_in(self) -> bool:
        """Whether it asks no provider, for `block_models`. A model that records asks its real
        model.
        """
        return not self._cassette.records or is_stand_in(self.real)

    @property
    def real(self) -> Model:
        """The model for which it stands."""
        if self._real is None:
            self._real = resolve_model(self.given)
        return self._real

    async def __aenter__(self) -> Self:
        if self._real is not None and self._cassette.records:
            await self._real.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        if self._real is not None and self._cassette.records:
            return await self._real.__aexit__(*error)
        return None

    def _refresh_http_client(self) -> None:
        if self._real is not None and self._cassette.records:
            self._real._refresh_http_client()

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        context = self._context(model_settings, model_request_parameters)
        asked = self._cassette.request(context, messages)
        reply = self._cassette.take(asked)
        if reply is None:
            real = self.real
            sent = prepared(real, messages, model_request_parameters, model_settings)
            reply = await real.request(sent, model_settings, model_request_parameters)
            self._cassette.keep(asked, reply)
        return reply

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        context = self._context(model_settings, model_request_parameters)
        asked = self._cassette.request(context, messages)
        reply = self._cassette.take(asked)
        options = (model_settings, model_request_parameters)
        if reply is not None:
            played = ScriptedModel([reply], name=self.model_name)
            async with played.request_stream(messages, *options) as stream:
                yield stream
            return
        real = self.real
        sent = prepared(real, messages, model_request_parameters, model_settings)
        async with real.request_stream(sent, *options, run_context) as stream:
            yield stream
            reply = stream.get()
        self._cassette.keep(asked, reply)  # a reply that breaks is not kept

    def _context(
        self, settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> dict[str, Any]:
        """The context of a request beside its messages."""
        tools = (*parameters.function_tools, *parameters.output_tools)
        found = {
            "model": self.model_name,
            "settings": _as_data(settings or {}),
            "instructions": "\n\n".join(p.content for p in parameters.instruction_parts or ()),
            "tools": {
                tool.name: {"description": tool.description, **tool.parameters_json_schema}
                for tool in tools
            },
            "native tools": sorted(tool.unique_id for tool in parameters.native_tools),
            "output": "" if parameters.output_mode == "text" else parameters.output_mode,
        }
        if parameters.output_object is not None:
            found["output"] = parameters.output_object.json_schema
        return {name: value for name, value in found.items() if value}


def _as_data(settings: ModelSettings) -> dict[str, Any]:
    """Settings as data, without headers and the provider's own settings."""
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _SETTINGS:
            with contextlib.suppress(ValueError):
                kept[name] = as_json(value)
    return kept


_SETTINGS = frozenset(
    {
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "parallel_tool_calls",
        "tool_choice",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "stop_sequences",
        "thinking",
    }
)


def _seen_by(redact: Redactor | None, what: str) -> Callable[[Any], Any]:
    """A function that redacts as the pages do. Without a redactor it changes nothing."""
    if redact is None:
        return lambda data: data
    # It needs the packages of the pages, which a cassette without a redactor does not need.
    from understudy.login.redaction import Redaction
    from understudy.login.users import NOBODY

    return partial(Redaction(redact, what=what).seen, NOBODY)


def _secrets_of_environment() -> Iterator[tuple[str, str]]:
    for name, value in os.environ.items():
        says = is_secret_option(name) or _ALSO_SECRET.search(name) is not None
        # A path is no secret, as in SSH_AUTH_SOCK or XAUTHORITY.
        if says and len(value) >= SHORTEST_SECRET and not value.startswith(("/", "~")):
            yield value, f"the value of the environment variable {name}"


def _texts(data: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The texts in some data, each with its path."""
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, Mapping):
        for name, value in data.items():
            yield (*path, name), str(name)
            yield from _texts(value, (*path, name))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _texts(value, (*path, index))
