"""`TodoList`: the model keeps a list of what is to do, and sees it in each request.

The list is among the agent's values, so it is stored, exported and restored with them. It owns no
requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    overload,
)

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from understudy._base.json_values import shown
from understudy._base.type_variables import DepsT_contra
from understudy.errors import UsageError
from understudy.events import Event, ToolEnded
from understudy.middleware.base import Middleware, Prepared, RefOfAgent
from understudy.run.definition import AgentDefinition
from understudy.run.run import inside_run
from understudy.state.agent_state import AgentState
from understudy.tools import Retry, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from understudy.loop_actors.future import Future

T = TypeVar("T")

MAX_ITEMS = 100
_TOOL = "write_todos"
_KEY = "todo_lists"
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
_OVER = ("completed", "cancelled")
_INSTRUCTIONS = (
    f"For work of several steps, keep a list of what is to do with `{_TOOL}`: mark an item as "
    "in_progress before you begin with it, and as completed as soon as it is done."
)
_NOW = "Your list now ([ ] pending, [>] in_progress, [x] completed, [-] cancelled):"

TodoStatus = Literal["pending", "in_progress", "completed", "cancelled"]
Id = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=50)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class TodoItem(BaseModel):
    """An item of the list."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    id: Id
    text: Text
    status: TodoStatus = "pending"


class TodoLists(BaseModel):
    """The values that a `TodoList` keeps."""

    todo_lists: dict[str, list[TodoItem]] = {}
    """The list of each agent, by its name. Agents of a workflow share values, but no list."""


class TodoChange(BaseModel):
    """An item of the list, or what changes of one."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: Id = Field(description="short, each once")
    text: Text | None = Field(None, description="needed for a new item")
    status: TodoStatus | None = Field(None, description="pending for a new item")


def _each_once(items: list[TodoChange]) -> list[TodoChange]:
    known = set[str]()
    for item in items:
        if item.id in known:
            raise ValueError(f"two items have the id {shown(item.id)}: name each once")
        known.add(item.id)
    return items


class TodoList(Middleware[DepsT_contra]):
    """A middleware that gives the model a to-do list, and a tool to change it.

    The tool `write_todos(items, merge=False)` replaces the list, or merges the items into it by
    their ids. Each request has the list in its instructions. The list is cleared when no item is
    pending or in progress. The event `ToolEnded` of each call has the whole list as its content:
    `TodoList.changed(event)` reads it.

    The list is a value of the agent. It is kept over runs, restarts, compactions and exports. Each
    sub-agent, and each agent of a workflow, has its own list.

    Args:
        max_items: the maximum number of items.

    Raises:
        UsageError: if the number is not possible.

    """

    state_schema: ClassVar[type[BaseModel] | None] = TodoLists

    def __init__(self, *, max_items: int = 50) -> None:
        if type(max_items) is not int or not 1 <= max_items <= MAX_ITEMS:
            raise UsageError(
                f"TodoList: `max_items` must be an integer from 1 to {MAX_ITEMS}, got "
                f"{shown(max_items)}"
            )
        self._max_items = max_items

    def prepare(self, definition: AgentDefinition) -> Prepared:
        name = definition.name

        def instructions(state: AgentState) -> str:
            items = TodoList.of(state, name)
            if not items:
                return _INSTRUCTIONS
            return "\n".join([_INSTRUCTIONS, "", _NOW, *map(_line, items)])

        return Prepared(instructions=instructions, tools=[self._tool(name)])

    def _tool(self, agent: str) -> Tool:
        most = self._max_items

        async def write_todos(ctx: ToolContext, items: Any, merge: bool = False) -> ToolResult:
            known = _list_before(ctx, agent) if merge else ()
            after = _changed(known, items)
            if len(after) > most:
                raise Retry(
                    f"the list would have {len(after)} items: it takes {most}; leave out what is "
                    "done, or write fewer"
                )
            listed = [item.model_dump() for item in after]
            kept = [] if all(item.status in _OVER for item in after) else listed
            return ToolResult(listed, state={_KEY: {agent: kept}})

        write_todos.__annotations__ = {
            "ctx": ToolContext,
            "items": Annotated[
                list[TodoChange], Field(max_length=most), AfterValidator(_each_once)
            ],
            "merge": bool,
            "return": ToolResult,
        }
        write_todos.__doc__ = """Write the list of what is to do.

        Args:
            ctx: the call.
            items: all items, in order; with merge only those that are new or change.
            merge: change the items with these ids and add the others; the rest stays.

        """
        # The calls run one after the other: each builds on the list that the call before has
        # written.
        return Tool(write_todos, name=_TOOL, sequential=True, read_only=True)

    @overload
    @staticmethod
    def of(place: AgentState, agent: str | None = None) -> tuple[TodoItem, ...]: ...
    @overload
    @staticmethod
    def of(place: RefOfAgent, agent: str | None = None) -> Future[tuple[TodoItem, ...]]: ...
    @staticmethod
    def of(
        place: AgentState | RefOfAgent, agent: str | None = None
    ) -> tuple[TodoItem, ...] | Future[tuple[TodoItem, ...]]:
        """Return the list of a state, in order; or, as a future, the list of the agent of a ref.

        Args:
            place: the state or the ref.
            agent: the name of an agent of a workflow; by default the agent's own list.

        Raises:
            UsageError: if `place` is neither a state nor a ref.

        """
        if isinstance(place, AgentState):
            return _items(place.values.get(_KEY), agent or _agent_of(place))
        if not callable(getattr(place, "on_loop", None)):
            raise UsageError(
                f"TodoList.of takes an AgentState, or the ref of an agent, got {shown(place)}"
            )
        ref = place

        async def read() -> tuple[TodoItem, ...]:
            return TodoList.of(await ref.state(), agent)

        return ref.on_loop(read)

    @staticmethod
    def changed(event: Event) -> tuple[TodoItem, ...] | None:
        """Return the whole list if the event says that a call has written it; None otherwise.

        If all is done, it has the items with which the list was cleared.
        """
        if (
            not isinstance(event, ToolEnded)
            or event.tool_name != _TOOL
            or event.outcome != "success"
        ):
            return None
        return _items({"": event.content}, "")


def _agent_of(state: AgentState) -> str | None:
    return None if state.run is None else state.run.agent


def _items(lists: Any, agent: str | None) -> tuple[TodoItem, ...]:
    """The list of the agent; the first list if no run says which agent it is."""
    found = next(iter(lists.values()), ()) if lists and agent is None else (lists or {}).get(agent)
    return tuple(TodoItem.model_validate(item) for item in found or ())


def _line(item: TodoItem) -> str:
    return f"{_MARKS[item.status]} {item.id}: {' '.join(item.text.split())}"


def _list_before(ctx: ToolContext[Any], agent: str) -> tuple[TodoItem, ...]:
    """The list as the earlier calls leave it.

    Raises:
        Retry: if an earlier call has no result yet.

    """
    run = inside_run.get()
    assert run is not None, "a tool runs inside a run"
    lists = run.state.values.get(_KEY)
    turn = run.current.turn
    # The changes of a turn's calls are merged when all calls have a result.
    for call in turn.calls.values() if turn is not None else ():
        if call.key == ctx.call_key:
            break
        if call.part.tool_name != _TOOL:
            continue
        if call.result is None:
            raise Retry(f"{_TOOL} was called before, and waits: write all items in one call")
        lists = (call.result.state or {}).get(_KEY, lists)
    return _items(lists, agent)


def _changed(known: Sequence[TodoItem], changes: Sequence[TodoChange]) -> list[TodoItem]:
    """The list after these changes.

    Raises:
        Retry: for a new item without a text.

    """
    after = {item.id: item for item in known}
    for change in changes:
        item = after.get(change.id)
        text = change.text or (item and item.text)
        if not text:
            ids = ", ".join(after) or "none"
            raise Retry(
                f"the item {shown(change.id)} is new and needs a `text`; the ids in the list: {ids}"
            )
        status = change.status or (item.status if item else "pending")
        after[change.id] = TodoItem(id=change.id, text=text, status=status)
    return list(after.values())
