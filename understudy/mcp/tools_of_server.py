"""`mcp_tools`: the tools of an MCP server as tools of an agent; a list that may be saved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from understudy._base.json_values import checked_flag, checked_seconds, checked_text, digest, shown
from understudy.errors import UsageError
from understudy.mcp.listed_tool import MAX_DESCRIPTION, ListedTool, NotReached
from understudy.mcp.mcp_server import McpServer
from understudy.tools import OutcomeUnknown, Tool, ToolContext
from understudy.tools.effects import Known, checked_errors, what_is_known
from understudy.tools.predicates import checked_predicate
from understudy.tools.result import RemoteToolError
from understudy.tools.tool_defaults import Undeclared

FORMAT = 1
MAX_TOOLS = 1_000
"""The maximum number of tools of one server that an agent may get."""
OPTIONS = frozenset(
    (
        *("ask", "read_only", "idempotent", "undeclared", "nothing_happened", "unknown_after"),
        *("key", "on_repeat", "key_kept", "check", "check_after"),
        *(
            "on_unknown",
            "timeout",
            "progress_extends",
            "sequential",
            "background",
            "retry",
            "display_text",
            "version",
            "aliases",
        ),
    )
)
"""The options of a tool that `policy` may set."""
Policy = Mapping[str, Mapping[str, Any]]
Include = Collection[str] | Callable[[str], bool]
_NO_LETTER = re.compile(r"[^A-Za-z0-9_-]")


class McpOptions(TypedDict, total=False):
    """The options of `mcp_tools`: the tools to make, and how."""

    trust: bool
    policy: Policy | None
    prefix: str | None
    include: Include | None
    undeclared: Undeclared | None
    timeout: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The `McpOptions`, checked by `_check_options`."""

    trust: bool = False
    policy: Policy | None = None
    prefix: str | None = None
    include: Include | None = None
    undeclared: Undeclared | None = None
    timeout: float | None = 60


class McpTools(Sequence[Tool]):
    """The tools of an MCP server, as the server listed them: `tools=[*tools]`.

    `mcp_tools` and `load_mcp_tools` make it.
    """

    def __init__(self, id: str, tools: Sequence[Tool], listed: Mapping[str, ListedTool]) -> None:
        self.id = id
        """The id of the server."""
        self._tools = tuple(tools)
        self._listed = listed

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tool]: ...
    def __getitem__(self, index: int | slice) -> Tool | Sequence[Tool]:
        """The tool at this place."""
        return self._tools[index]

    def __len__(self) -> int:
        """The number of tools."""
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        """The tools, as the server lists them."""
        return iter(self._tools)

    def __repr__(self) -> str:
        return f"McpTools({self.id!r}, {[tool.name for tool in self._tools]})"

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything that the server listed into a file, for `load_mcp_tools`."""
        tools = [tool.to_dict() for tool in self._listed.values()]
        data = {"format": FORMAT, "id": self.id, "tools": tools}
        Path(path).write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


async def mcp_tools(
    server: Any,
    *,
    id: str,
    trust: bool = False,
    policy: Policy | None = None,
    prefix: str | None = None,
    include: Include | None = None,
    undeclared: Undeclared | None = None,
    timeout: float | None = 60,
    headers: Mapping[str, str] | None = None,
) -> McpTools:
    """List the tools of an MCP server once, and return them as fixed tools.

    The connection for the list is closed again. The first call of a tool opens a new connection.
    The runtime shares it among all its agents and closes it when it stops.

    Args:
        server: a URL; a command as a list, `["npx", "-y", "some-server"]`; the parameters of a
            command, `mcp.StdioServerParameters`; a server of this process, `mcp.MCPServer`; a
            function that returns a transport, such as `lambda: streamable_http_client(url)`; or
            an `MCPToolset` of Pydantic AI or a `fastmcp.Client`.
        id: the name of the server, in errors, in requests, and in the binding of an approval.
        trust: whether the hints of the server (`readOnlyHint`, `idempotentHint`,
            `destructiveHint`) decide which tools ask a person and which may run again. Without
            trust all tools ask, and none may run again.
        policy: options by the server's name of a tool, such as `{"search": {"ask": False,
            "idempotent": True}}`. They win over the hints of the server.
        prefix: a text that is put before each name, followed by `_`.
        include: the server's names of the tools to take, or a function of a name; by default
            all.
        undeclared: what is assumed of a tool if neither a trusted server nor `policy` says what
            a repeated call does: `"effects"` or `"read_only"`; see `Agent`.
        timeout: seconds for each call, from the time when it is sent, unless `policy` has
            another value; None = no limit. With `"progress_extends": True` in the policy, the
            time starts anew whenever the server reports progress.
        headers: headers of the requests, for a URL.

    Raises:
        UsageError: if options do not fit, a name is not listed by the server, the schema of a
            tool is wrong, or the list is too long.
        ConnectionError: if the server cannot be reached, or does not speak MCP.

    """
    source = McpServer(server, id=id, headers=headers)
    options = _Options(
        trust=trust,
        policy=policy,
        prefix=prefix,
        include=include,
        timeout=timeout,
        undeclared=undeclared,
    )
    _check_options(id, options)
    async with source.open() as connection:
        listed = connection.listed
    return _made(source, listed, options)


def load_mcp_tools(
    path: str | PathLike[str],
    server: Any,
    *,
    id: str,
    headers: Mapping[str, str] | None = None,
    **options: Unpack[McpOptions],
) -> McpTools:
    """Make the tools of an MCP server from a file of `McpTools.save`, without a connection.

    If the server now lists a tool differently, or not at all, the tool is not called: the model
    gets an error.

    Args:
        path: the path of the file.
        server: as in `mcp_tools`.
        id: the id that was saved.
        headers: as in `mcp_tools`.
        options: as in `mcp_tools`.

    Raises:
        UsageError: if the file cannot be read, or belongs to another server; and as
            `mcp_tools`.

    """
    for name in options.keys() - McpOptions.__annotations__.keys():
        raise TypeError(f"load_mcp_tools() got an unexpected keyword argument {name!r}")
    source = McpServer(server, id=id, headers=headers)
    given = _Options(**options)
    _check_options(id, given)
    what = f"load_mcp_tools: {str(path)!r}"
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} cannot be read: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("tools"), list):
        raise UsageError(f"{what} is no list that McpTools.save has written")
    if data.get("format") != FORMAT:
        raise UsageError(f"{what} has the format {data.get('format')!r}, and {FORMAT} is known")
    if data.get("id") != id:
        raise UsageError(f"{what} is the list of the server {data.get('id')!r}, not of {id!r}")
    tools = [ListedTool.from_dict(each, what=what) for each in data["tools"]]
    listed = {tool.name: tool for tool in tools}
    if len(listed) < len(tools):
        raise UsageError(f"{what} has two tools of one name")
    return _made(source, listed, given)


def _check_options(id: str, options: _Options) -> None:
    what = f"MCP server {id!r}"
    checked_flag(options.trust, what=f"{what}: `trust`")
    if options.prefix is not None:
        checked_text(options.prefix, what=f"{what}: `prefix`")
    if options.timeout is not None:
        checked_seconds(options.timeout, what=f"{what}: `timeout`")
    include: object = options.include
    is_list = isinstance(include, Collection) and not isinstance(include, str)
    if include is not None and not is_list and not callable(include):
        raise UsageError(
            f"{what}: `include` must be a list of names, or a function, got {shown(include)}"
        )
    policy: object = options.policy
    if policy is None:
        return
    if not isinstance(policy, Mapping):
        raise UsageError(f"{what}: `policy` must be a dict by tool, got {shown(policy)}")
    for name, own in policy.items():
        if not isinstance(own, Mapping):
            raise UsageError(
                f"{what}: policy[{name!r}] must be a dict of options, got {shown(own)}"
            )
        for option in own:
            if option not in OPTIONS:
                raise UsageError(
                    f"{what}: policy[{name!r}] has the option {shown(option)}; options are "
                    f"{', '.join(sorted(OPTIONS))}"
                )


def _made(server: McpServer, listed: Mapping[str, ListedTool], options: _Options) -> McpTools:
    policy, include = options.policy or {}, options.include
    named = () if include is None or callable(include) else include
    for name, where in (*((n, "policy") for n in policy), *((n, "include") for n in named)):
        if not isinstance(name, str) or name not in listed:
            close = get_close_matches(str(name), listed, n=1)
            hint = f": did you mean {close[0]!r}?" if close else f"; it lists {len(listed)} others"
            raise UsageError(f"{server} lists no tool {name!r}, which `{where}` names{hint}")
    if callable(include):
        what = f"{server}: `include`, asked about the tool"
        chosen = [
            tool
            for tool in listed.values()
            if checked_predicate(include, tool.name, what=f"{what} {tool.name!r},")
        ]
    else:
        chosen = [tool for tool in listed.values() if include is None or tool.name in include]
    if len(chosen) > MAX_TOOLS:
        raise UsageError(
            f"{server} lists {len(chosen):,} tools, and each is sent with each request to a model: "
            "name those that the agent needs, by include=[...]"
        )
    made: dict[str, Tool] = {}
    for tool in chosen:
        one = _tool(server, tool, options, policy.get(tool.name, {}))
        if one.name in made:
            raise UsageError(
                f"{server}: two of its tools become {one.name!r}: take one of them, by include="
            )
        made[one.name] = one
    return McpTools(server.id, tuple(made.values()), listed)


def _tool(server: McpServer, listed: ListedTool, given: _Options, own: Mapping[str, Any]) -> Tool:
    from understudy.mcp.call_tool import call_tool

    if len(listed.description) > MAX_DESCRIPTION:
        raise UsageError(
            f"{server}: the description of {listed.name!r} has {len(listed.description):,} "
            f"characters, and may have {MAX_DESCRIPTION:,}: leave the tool out, by include="
        )
    options = {
        "timeout": given.timeout,
        "on_unknown": "ask",
        "undeclared": given.undeclared,
        **_by_hints(server, listed, given.trust),
    }
    if "read_only" in own or "idempotent" in own:  # it overrides the server's hints
        options |= {"read_only": False, "idempotent": False}
    options |= own
    progress_extends = checked_flag(
        options.pop("progress_extends", False), what=f"{server}: `progress_extends`"
    )
    unknown = checked_errors(own.get("unknown_after", ()), what=f"{server}: `unknown_after`")
    is_failure = what_is_known(RemoteToolError(), unknown_after=unknown) is not Known.UNKNOWN
    options["nothing_happened"] = (
        NotReached,
        *((RemoteToolError,) if is_failure else ()),
        *checked_errors(own.get("nothing_happened", ()), what=f"{server}: `nothing_happened`"),
    )
    # The server's description of its tool is a part of what a person approves.
    options["version"] = digest([server.id, listed.digest, options.get("version", "")])
    may_repeat = bool(options["read_only"] or options["idempotent"])
    if may_repeat:
        options.setdefault("retry", _again())

    async def call(ctx: ToolContext, arguments: dict[str, Any]) -> Any:
        return await call_tool(
            server, listed, ctx, arguments, repeatable=may_repeat, progress_extends=progress_extends
        )

    name = _model_name(listed.name, given.prefix)
    return Tool.from_schema(name, listed.description, listed.parameters, call, **options)


def _by_hints(server: McpServer, listed: ListedTool, trust: bool) -> dict[str, Any]:
    """The options on who is asked, and what may run again, by the server's hints."""
    hints = listed.hints
    claims = ", ".join(f"{name}Hint: {str(on).lower()}" for name, on in hints.items())
    said = f"{server} says: {claims}." if claims else f"{server} says nothing of what it does."

    def display(arguments: dict[str, Any], ctx: ToolContext) -> str:
        return said if trust else f"{said} It is not trusted."

    asks: dict[str, Any] = {"ask": {"display": display}, "read_only": False, "idempotent": False}
    if not trust:
        return asks
    if hints.get("readOnly"):
        return {"ask": False, "read_only": True, "idempotent": False}
    # By the protocol, a tool that is not declared harmless is destructive.
    is_harmless = hints.get("destructive") is False
    return {
        "ask": False if is_harmless else asks["ask"],
        "read_only": False,
        "idempotent": hints.get("idempotent", False),
    }


def _again() -> AsyncRetrying:
    """The policy that repeats a repeatable call if the connection was lost."""
    return AsyncRetrying(
        retry=retry_if_exception_type((OutcomeUnknown, ConnectionError)),
        stop=stop_after_attempt(3),
        wait=wait_exponential(multiplier=0.1, max=2),
    )


def _model_name(name: str, prefix: str | None) -> str:
    """The name for the model: providers take letters, digits, `_` and `-`, and 64 of them."""
    full = _NO_LETTER.sub("_", name if prefix is None else f"{prefix}_{name}")
    return full if len(full) <= 64 else f"{full[:55]}_{digest(full)[:8]}"
