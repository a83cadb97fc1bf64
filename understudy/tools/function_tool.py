"""`Tool`: a function that a model may call.

Pydantic AI generates the schema from the signature and the docstring. The function itself is called
by the pipeline, which gives each call a key, records and approvals.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
)

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_ai.tools import ToolDefinition

from understudy._base.json_values import (
    NotJsonError,
    as_json,
    check_sendable,
    checked_flag,
    checked_seconds,
    checked_text,
    digest,
    read_json_of,
    reason,
    shown,
)
from understudy._base.request_timing import Seconds
from understudy._base.type_variables import DepsT, FunctionT_co
from understudy.errors import UsageError
from understudy.models.call_arguments import invalid_json
from understudy.state.records import Effect
from understudy.tools.checks import Check, checked_check
from understudy.tools.context import ToolContext
from understudy.tools.effects import CheckedErrors, Errors, check_tables, checked_errors
from understudy.tools.gate_rule import GateRule, Rule, check_title, checked_rule
from understudy.tools.key_rule import Key, KeyRule, OnRepeat, checked_key
from understudy.tools.result import InvalidArguments, ToolResult
from understudy.tools.schema import is_async
from understudy.tools.signature_arguments import SignatureArguments
from understudy.tools.tool_defaults import Undeclared, checked_undeclared

if TYPE_CHECKING:
    from tenacity import AsyncRetrying


class Arguments(Protocol):
    """The arguments of the calls of a tool, by its signature or by a JSON schema."""

    takes_context: bool
    """Whether the function takes a `ToolContext` before the arguments."""
    is_plain: bool
    """Whether what a model writes is what the function gets: nothing is converted or filled in."""
    returns: Any
    """The type of the value that the function returns; `Any` if it is not known."""
    definition: ToolDefinition
    """The definition that the model gets."""

    def validate(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        """Validate arguments, for `Tool.validate`."""

    def canonical(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Write arguments as JSON, for `Tool.canonical`."""

    def made(
        self, given: str | Mapping[str, Any] | None, checked: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Make the arguments for a record, for `Tool.made`."""

    def bind(self, checked: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Bind arguments, for `Tool.bind`."""


OnUnknown = Literal["ask", "tell"]
_NAME = re.compile(r"[^\0\ud800-\udfff]{1,500}")
DisplayText = str | Callable[[Mapping[str, Any]], str]


class ToolOptions(TypedDict, total=False):
    """The options of `Tool`, as keyword arguments."""

    sequential: bool
    background: bool
    read_only: bool
    idempotent: bool
    undeclared: Undeclared | None
    nothing_happened: Errors
    unknown_after: Errors
    check: Check | None
    check_after: Sequence[Seconds] | None
    key: Key | None
    on_repeat: OnRepeat | None
    key_kept: timedelta | float | None
    timeout: float | None
    inline: bool
    on_unknown: OnUnknown | None
    aliases: Sequence[str]
    version: str
    retry: AsyncRetrying | None
    display_text: DisplayText | None
    ask: Rule


def checked_name(given: object) -> str:
    """`given`, if it can be the name of a tool by which a store finds waits; else raise a
    `UsageError`.
    """
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise UsageError(
            f"A tool's `name` must be text of 1 to 500 characters without NUL, got {shown(given)}"
        )
    return given


def check_options(
    name: str, flags: Mapping[str, object], *, timeout: float | None, on_unknown: str | None
) -> None:
    """Raise a `UsageError` for an option with a wrong value."""
    for option, given in flags.items():
        checked_flag(given, what=f"Tool {name!r}: `{option}`")
    if timeout is not None:
        checked_seconds(timeout, what=f"Tool {name!r}: `timeout`")
    if on_unknown not in (None, "ask", "tell"):
        raise UsageError(f"Tool {name!r}: `on_unknown` must be 'ask' or 'tell', got {on_unknown!r}")


def check_display_text(name: str, given: object) -> None:
    """Raise a `UsageError` for what is neither text nor a plain function."""
    if isinstance(given, str):
        checked_text(given, what=f"Tool {name!r}: `display_text`")
    elif given is not None and (not callable(given) or is_async(given)):
        raise UsageError(
            f"Tool {name!r}: `display_text` must be text, or a plain function of the arguments, "
            f"got {shown(given)}"
        )


def check_retry(name: str, retry: object, *, repeatable: bool) -> None:
    """Raise a `UsageError` for what is no policy, or for one of a tool that must not be retried."""
    if retry is None:
        return
    from tenacity import AsyncRetrying  # few tools have one

    if not isinstance(retry, AsyncRetrying):
        raise UsageError(
            f"Tool {name!r}: `retry` must be a tenacity.AsyncRetrying, got {shown(retry)}"
        )
    if not repeatable:
        raise UsageError(
            f"Tool {name!r}: `retry` runs a call again, although the first call may have had its "
            "effect: make the tool safe to run again with the same ctx.call_key and give "
            "idempotent=True, or give read_only=True if it only looks something up"
        )


def _checked_aliases(given: object, name: str) -> tuple[str, ...]:
    what = f"Tool {name!r}: `aliases`"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UsageError(f"{what} must be a list of names, such as ['pay'], got {shown(given)}")
    aliases = tuple(checked_name(each) for each in given)
    if name in aliases or len(set(aliases)) < len(aliases):
        raise UsageError(
            f"{what} must be earlier names of the tool, each once, without its present name, got "
            f"{shown(given)}"
        )
    return aliases


P = ParamSpec("P")
R = TypeVar("R")

ToolFunction = Callable[Concatenate[ToolContext[DepsT], ...], Any] | Callable[..., Any]
"""What can be used as a tool: a `Tool`, or any function.

With the first form type checkers see the type of its deps.
"""


class Tool(Generic[FunctionT_co]):
    """A function with its schema. Create it with `@tool`; you can still call it as the function.

    A tool that is neither `read_only` nor `idempotent` has *effects*: a call of which nobody knows
    what it did is in doubt, and does not run again by itself.

    Args:
        function: the function, async or plain. A plain function runs in a worker thread.
        name: the name for the model; by default the function's name.
        description: the description for the model; by default the docstring.
        sequential: run the tool alone, and not concurrently with the other calls of the reply.
        background: the model gets "started" at once, and the result in a later message. An
            agent of its own makes the call, in a `Runtime`. Do not use it for a tool that
            changes the state, the files or the run of the agent that calls it.
        read_only: calling the tool again never harms, however often and with whatever key. It
            only looks something up. Its calls are never in doubt.
        idempotent: calling the tool again with the same `ctx.call_key` does not harm. So a call
            of which nobody knows what it did may run again.
        undeclared: the effect if neither `read_only` nor `idempotent` is given; by default as
            the agent says, see `Agent`.
        nothing_happened: errors which prove that a call did nothing, besides those that all
            tools have. They are classes, or names such as `"shop.errors.Refused"`. The model
            may call again.
        unknown_after: errors after which nobody knows what a call did, in the same form. The
            call is then in doubt. `unknown_after=Exception` covers every error that does not
            prove that nothing happened.
        check: a function that finds out what a call in doubt did, before anybody is asked:
            `check(ctx, arguments)`, async or plain, with the arguments of the call as a dict.
            It returns `Happened(result)`, whose result becomes the result of the call;
            `DidNotHappen()`, which the model reads as the result; or `Unknown()`. An exception
            counts as `Unknown`, and so does a check of more than 60 seconds. A check only looks,
            and may be asked any number of times. If the run ends first, the call stays in doubt.
            For a tool with a check, only `Retry`, `ToolFailed` and `nothing_happened` prove that a
            call did nothing.
        check_after: the times of the check, as seconds or timedeltas from the call's last sign
            of life; by default 60, 120, 600, 1800 and 3600 seconds. After the last time a
            person is asked, or with `on_unknown="tell"` the model is informed. `DidNotHappen` does
            not count before 60 seconds.
        key: a plain function of the arguments that returns text, such as `lambda a:
            f"refund:{a['order_id']}"`. Calls with the same text are equal, whatever their other
            arguments are. Of equal calls one runs at a time, over all agents of the store. A
            person, or `on_repeat`, decides what becomes of the others. If the function raises,
            or does not return text, the call is an error and does not run. A decision about two
            equal calls holds for these two only. For a tool with a key, only `Retry`,
            `ToolFailed` and `nothing_happened` prove that a call did nothing.
        on_repeat: what becomes of a call if an equal call is done. `"ask"`: a person decides
            (the default). `"refuse"`: it does not run, and the model gets the reason. `"allow"`: it
            runs.
        key_kept: how long a finished call counts as done: days, or a timedelta; by default 90
            days.
        timeout: seconds after which an attempt at the call is given up. Nobody then knows what
            it did: the call is in doubt, or an idempotent call is repeated. For a read-only
            tool it is an error.
        inline: run a plain function on the event loop itself. Only for fast functions.
        on_unknown: who settles a call in doubt: `"ask"` a person, or `"tell"` the model that
            the outcome is unknown. By default a person is asked if the call needed approval or
            the tool has a `check`.
        aliases: earlier names of the tool. Open calls and approvals of these names continue
            with this tool. The model does not see the names.
        version: a part of what an approval is bound to. Change it when the tool's meaning
            changes.
        retry: a Tenacity policy. A call that raises runs again before the model hears of it.
            Only for an idempotent or a read-only tool. It replaces the two repeats of an
            idempotent call of which nobody knows what it did. A wait of more than 5 seconds
            suspends the call: it costs nothing, and survives the end of the process. The
            `deadline` of a run does not count such waits; its `ends_at` does. The policy is
            asked at most 1,000 times. `wrap_tool_call` of a middleware sees the last attempt
            only.
        display_text: the text that a person reads of a call, such as `"Searching the
            archive…"`, or a plain function that makes it. The function gets the arguments as
            the model wrote them, not yet validated. It must not block. The model does not see
            the text.
        ask: let a person decide before the tool runs: True, a list of decisions, or a dict of
            options, as a rule of `HumanInTheLoop`. A `HumanInTheLoop` that names the tool has
            precedence, even if it asks nobody.

    Raises:
        UsageError: if a parameter has no annotation, if there is `*args` or `**kwargs`, if
            options do not fit together, or if the signature has no schema.

    """

    def __init__(
        self,
        function: FunctionT_co,
        *,
        name: str | None = None,
        description: str | None = None,
        sequential: bool = False,
        background: bool = False,
        read_only: bool = False,
        idempotent: bool = False,
        undeclared: Undeclared | None = None,
        nothing_happened: Errors = (),
        unknown_after: Errors = (),
        check: Check | None = None,
        check_after: Sequence[Seconds] | None = None,
        key: Key | None = None,
        on_repeat: OnRepeat | None = None,
        key_kept: timedelta | float | None = None,
        timeout: float | None = None,
        inline: bool = False,
        on_unknown: OnUnknown | None = None,
        aliases: Sequence[str] = (),
        version: str = "",
        retry: AsyncRetrying | None = None,
        display_text: DisplayText | None = None,
        ask: Rule = False,
    ) -> None:
        if not callable(function):
            raise UsageError(f"A tool must be a function, got {function!r}")
        self.function: FunctionT_co = function
        if name is None:
            name = str(getattr(function, "__name__", type(function).__name__))
        self.name: str = checked_name(name)
        if self.name == "<lambda>":
            raise UsageError("A lambda has no name for the model: use Tool(function, name=...)")
        for option, given in {"description": description, "version": version}.items():
            if given is not None:
                checked_text(given, what=f"Tool {self.name!r}: `{option}`", may_be_empty=True)
        flags = {
            "sequential": sequential,
            "background": background,
            "read_only": read_only,
            "idempotent": idempotent,
            "inline": inline,
        }
        check_options(self.name, flags, timeout=timeout, on_unknown=on_unknown)
        self.sequential = sequential
        self.background = background
        if background and (sequential or inline):
            raise UsageError(
                f"Tool {self.name!r}: nothing waits for a background call: use `background`, "
                "without `sequential` and `inline`"
            )
        if read_only and idempotent:
            raise UsageError(
                f"Tool {self.name!r}: use `read_only` (calling it again never harms) or "
                "`idempotent` (calling it again under the same key does not harm), not both"
            )
        self.undeclared: Undeclared | None = checked_undeclared(
            undeclared, what=f"Tool {self.name!r}"
        )
        self.effect: Effect | None = (
            "read_only" if read_only else "idempotent" if idempotent else None
        )
        """The effect of calling the tool again; None if the tool does not declare it."""
        self.agent_argument: str = ""
        """The name of the argument that names the agent which a call runs; empty if there is
        none."""
        what = f"Tool {self.name!r}"
        self.nothing_happened: CheckedErrors = checked_errors(
            nothing_happened, what=f"{what}: `nothing_happened`"
        )
        self.unknown_after: CheckedErrors = checked_errors(
            unknown_after, what=f"{what}: `unknown_after`"
        )
        check_tables(self.nothing_happened, self.unknown_after, what=what)
        self.check: Check | None
        self.check_after: tuple[float, ...]
        self.check, self.check_after = checked_check(
            check, check_after, read_only=read_only, what=what
        )
        self.key: KeyRule | None = checked_key(
            key, on_repeat, key_kept, read_only=read_only, what=what
        )
        """The function that makes the key of a call; None if only calls with the same arguments are
        equal."""
        self.is_known_to_have_effects: bool = self.check is not None or self.key is not None
        """Whether its author assumes that the tool has effects.

        Then only its own declarations prove that nothing happened, and the setting for undeclared
        tools does not cover it.
        """
        self.timeout = timeout
        self.inline = inline
        self.on_unknown = on_unknown
        self.version = version
        self.retry: AsyncRetrying | None = retry
        check_retry(self.name, retry, repeatable=read_only or idempotent)
        check_display_text(self.name, display_text)
        self.display_text: DisplayText | None = display_text
        self.gate: GateRule | None = checked_rule(ask, what=f"Tool {self.name!r}: `ask`")
        """The rule of `ask`; None if the tool itself does not ask for a person."""
        self.is_async: bool = is_async(function)
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise UsageError(f"Tool {self.name!r} is a generator: return one value instead")
        if inline and timeout is not None:
            raise UsageError(f"Tool {self.name!r}: use `timeout` or `inline`, not both")
        if inline and self.is_async:
            raise UsageError(
                f"Tool {self.name!r} is async: it runs on the loop without inline=True"
            )

        self._arguments = self._read_arguments(description)
        self.takes_context: bool = self._arguments.takes_context
        self.makes_arguments: bool = not self._arguments.is_plain
        """Whether a call may run with other arguments than the model wrote: see `made`."""
        self.definition: ToolDefinition = self._arguments.definition
        self.description: str = self.definition.description or ""
        self.parameters: dict[str, Any] = self.definition.parameters_json_schema
        if self.gate is not None:
            check_title(self.gate, self.name, self.parameters, what=f"Tool {self.name!r}: `ask`")
        for_model = (self.name, self.description, self.parameters)
        check_sendable(for_model, what=f"Tool {self.name!r}: its name, description or schema")
        self.fingerprint: str = self.fingerprint_as(self.name)
        self.aliases: tuple[str, ...] = _checked_aliases(aliases, self.name)
        self.names: tuple[str, ...] = (self.name, *self.aliases)
        """The name of the tool, and its earlier names."""
        functools.update_wrapper(self, function, updated=())

    def _read_arguments(self, description: str | None) -> Arguments:
        return SignatureArguments(
            cast("Callable[..., Any]", self.function),
            name=self.name,
            description=description,
            sequential=self.sequential,
        )

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        call: Callable[..., Any],
        **options: Unpack[ToolOptions],
    ) -> Tool[Callable[..., Any]]:
        """Return a tool that is described by a JSON schema instead of a signature.

        Arguments are validated by the schema before anybody is asked about the call. They are
        passed on unchanged: a `default` is not filled in.

        Args:
            name: the name for the model.
            description: the description for the model.
            parameters: the schema of an object. It must not refer to anything outside itself:
                nothing is fetched.
            call: `call(arguments)` or `call(ctx, arguments)`, async or plain. The arguments are
                one dict, and `ctx` is a `ToolContext`. The return value is the same as for any
                tool.
            options: the options of `Tool`. An approval is bound to the schema, in addition to
                `version`.

        Raises:
            UsageError: if `parameters` is not the JSON schema of an object; if it refers to
                something outside itself, is larger than 200,000 bytes or is nested more than
                100 levels deep; if `call` takes other parameters; and as `Tool` does.

        """
        return _SchemaTool(call, parameters, name=name, description=description, **options)

    def fingerprint_as(self, name: str) -> str:
        """Return what an approval is bound to, for this name of the tool: its own name, or an
        alias.
        """
        return digest([name, self.parameters, self.version])

    def __call__(self: Tool[Callable[P, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as a test would."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    # ------------------------------------------------------------------ arguments

    def validate(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the keyword arguments for the function, converted to its types, with defaults
        filled in.

        Raises:
            InvalidArguments: if they do not fit; the message tells the model what to correct.

        """
        if isinstance(arguments, dict) and len(arguments) == 1:
            why = invalid_json(arguments)
            if why is not None:
                raise InvalidArguments(why)
        return self._arguments.validate(arguments)

    def revalidate(self, canonical: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments that canonical arguments stand for.

        Raises:
            InvalidArguments: if they do not fit the function's parameters.

        """
        return self.validate(canonical)

    def made(
        self, given: str | Mapping[str, Any] | None, checked: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the arguments of a call for a record. Every later look at the call begins with
        them.

        They are canonical: converted, and with the values of defaults. Some types do not read back
        what they write: a secret, a validator that converts, an alias. Then the arguments are as
        given, plus those defaults that can be read back.

        Args:
            given: the arguments that the model, or a person, wrote.
            checked: the same arguments after `validate` or `revalidate`.

        Returns:
            The arguments as JSON; None if they are the same as `given`.

        Raises:
            InvalidArguments: if they cannot be written as JSON.

        """
        return self._arguments.made(given, checked)

    def canonical(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Return validated arguments as JSON, in the form of the tool's schema.

        Raises:
            InvalidArguments: if they cannot be written as JSON.

        """
        return self._arguments.canonical(checked)

    def bind(self, checked: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return validated arguments as positional and keyword arguments, without the context."""
        return self._arguments.bind(checked)

    # --------------------------------------------------------------------- values

    def dump_value(self, value: Any) -> Any:
        """Return a return value as JSON, by the return annotation.

        Raises:
            ValueError: if it cannot be serialised, or could not be read again.

        """
        adapter = self._serializer
        if adapter is None or type(value) in (str, int, bool):
            return as_json(value)
        try:
            text = adapter.dump_json(value, warnings=False)
        except Exception as error:  # the value's own code may raise anything
            raise NotJsonError(reason(error)) from error
        return read_json_of(value, text)

    def load_value(self, data: Any) -> Any:
        """Return the return value from its `dump_value`.

        Raises:
            ValueError: if the annotation does not accept it any more.

        """
        return data if self._adapter is None else self._adapter.validate_python(data)

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        returns = self._arguments.returns
        if returns is Any:
            return None
        try:
            return TypeAdapter(returns)
        except (PydanticSchemaGenerationError, PydanticUserError):
            return None  # Pydantic cannot describe the type: values are serialised as they are

    @functools.cached_property
    def _serializer(self) -> TypeAdapter[Any] | None:
        """The adapter that writes values, also of a class that Pydantic does not know.

        It is not used to read values: it would accept only objects of that class.
        """
        if self._arguments.returns is Any or self._adapter is not None:
            return self._adapter
        try:
            return TypeAdapter(
                self._arguments.returns, config=ConfigDict(arbitrary_types_allowed=True)
            )
        except (PydanticSchemaGenerationError, PydanticUserError):
            return None


class _SchemaTool(Tool[Callable[..., Any]]):
    """A tool of `Tool.from_schema`."""

    def __init__(
        self, call: Callable[..., Any], parameters: Mapping[str, Any], **options: Any
    ) -> None:
        self._given_parameters = parameters
        super().__init__(call, **options)

    def _read_arguments(self, description: str | None) -> Arguments:
        from understudy.tools.schema_arguments import SchemaArguments

        return SchemaArguments(
            self.function,
            self._given_parameters,
            name=self.name,
            description=description,
            sequential=self.sequential,
        )


def as_tool(given: object) -> Tool:
    """`given` if it is a `Tool`, or a new one for a function.

    Raises:
        UsageError: for anything else.

    """
    if isinstance(given, Tool):
        return given
    if callable(given) and not isinstance(given, type):
        return Tool(given)
    raise UsageError(f"tools=[...] takes functions and @tool functions, got {given!r}")


def _exit_loop() -> ToolResult[str]:
    """Ends the loop that you work in. Call this only when your instructions tell you to."""
    return ToolResult("", escalate=True, skip_summarization=True)


exit_loop: Tool[Callable[[], ToolResult[str]]] = Tool(
    _exit_loop, name="exit_loop", inline=True, read_only=True
)
"""A tool that ends the nearest loop around the agent that calls it, and the agent's own run."""
