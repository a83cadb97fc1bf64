"""Tools of LangChain as tools (M12)."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
    create_retriever_tool,
)
from langchain_core.tools import Tool as OneInputTool
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from pydantic_ai.messages import BinaryContent

from tests.support.agents import by_turn, completed, contents, desk, interrupted, reloaded
from tests.support.cut_off import Crash, CutBefore
from understudy import (
    Agent,
    DecisionError,
    Tool,
    UsageError,
    approve,
    call,
    reject,
    respond,
    tool,
)

pytestmark = [pytest.mark.others, pytest.mark.filterwarnings("ignore")]


@langchain_tool
def refund(order_id: str, amount: float = 20) -> str:
    """Pay money back."""
    return f"refunded {amount} for {order_id}"


def told(made: Any, *arguments: dict[str, Any], deps: Any = None) -> list[tuple[str, Any]]:
    """How calls with these arguments end, and the text for the model."""
    calls = [call(made.name, each) for each in arguments]
    return contents(completed(desk(calls, tools=[made]).execute_sync("go", deps=deps)).state)


def test_it_is_called_by_langchain_with_arguments_that_langchain_takes() -> None:
    """M12."""
    made = tool.from_langchain(refund, read_only=True)
    assert (made.name, made.description, made.effect) == ("refund", "Pay money back.", "read_only")
    ended = told(made, {"order_id": "17"}, {"order_id": "17", "amount": "5"}, {"amount": 1})
    assert ended[0] == ("success", "refunded 20 for 17")
    assert ended[1] == ("success", "refunded 5.0 for 17")
    assert ended[2][0] == "failed"
    assert "order_id: Field required" in ended[2][1]


@pytest.mark.parametrize("given", [refund, tool.from_langchain(refund)])
def test_a_gate_asks_about_it_and_any_process_goes_on(given: Any) -> None:
    """M12."""

    def made() -> Agent:
        asked = call("refund", {"order_id": "17"})
        return desk(asked, tools=[given], interrupt_on={"refund": True})

    first = interrupted(made().execute_sync("go"))
    assert first.requests[0].arguments == {"order_id": "17"}
    outcome = completed(made().resume_sync(reloaded(first.state), approve()))
    assert contents(outcome.state) == [("success", "refunded 20 for 17")]


@pytest.mark.parametrize("handled", [False, True, "Sorry.", lambda error: f"Sorry: {error}"])
def test_an_error_that_leaves_open_what_happened_is_a_doubt_however_it_is_told(
    handled: Any,
) -> None:
    """M12."""

    @langchain_tool
    def pay() -> str:
        """Pay."""
        raise ToolException("the bank is gone") from TimeoutError()

    given = pay.model_copy(update={"handle_tool_error": handled})
    assert told(tool.from_langchain(given), {})[0][0] == "interrupted"


@pytest.mark.parametrize(
    ("handled", "words"),
    [
        (False, "ToolException: no such order"),
        (True, "no such order"),
        ("Sorry.", "Sorry."),
        (lambda error: f"Sorry: {error}", "Sorry: no such order"),
    ],
)
def test_any_other_error_is_told_in_the_words_of_the_tool(handled: Any, words: str) -> None:
    @langchain_tool
    async def pay() -> str:
        """Pay."""
        raise ToolException("no such order")

    given = pay.model_copy(update={"handle_tool_error": handled})
    assert told(tool.from_langchain(given), {}) == [("failed", words)]


def test_an_artifact_is_the_value_for_the_program() -> None:
    @langchain_tool(response_format="content_and_artifact")
    def find(order_id: str) -> tuple[str, dict[str, str]]:
        """Find an order."""
        return "a kettle", {"order": order_id}

    made = desk(call("find", {"order_id": "17"}), tools=[find])
    outcome = completed(made.execute_sync("go", until_tool="find"))
    assert outcome.tool_result is not None
    assert (outcome.tool_result.content, outcome.tool_result.value) == ("a kettle", {"order": "17"})


def test_return_direct_ends_the_run_with_the_turn() -> None:
    @langchain_tool(return_direct=True)
    def find() -> str:
        """Find an order."""
        return "a kettle"

    model = by_turn(call("find"))
    outcome = completed(Agent("desk", model, tools=[find]).execute_sync("go"))
    assert len(model.requests) == 1
    assert contents(outcome.state) == [("success", "a kettle")]


@langchain_tool
def injected(
    order_id: str, user: Annotated[str, InjectedToolArg], id: Annotated[str, InjectedToolCallId]
) -> str:
    """Use what the model does not write."""
    return f"{order_id} {user} {id}"


@langchain_tool
def of_a_graph(state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Read the state of the graph."""
    return str(state)


@langchain_tool
def of_a_runtime(runtime: ToolRuntime) -> str:
    """Use the runtime of the graph."""
    return str(runtime)


@langchain_tool
def configured(config: RunnableConfig) -> str:
    """Read the configuration."""
    return str(config["configurable"]["user"])


def test_what_a_graph_fills_in_is_made_by_a_function_of_the_context() -> None:
    made = tool.from_langchain(injected, inject={"user": lambda ctx: ctx.deps})
    assert list(made.parameters["properties"]) == ["order_id"]
    assert told(made, {"order_id": "17"}, deps="ann") == [("success", "17 ann call_0_0")]
    settings: dict[str, Any] = {"config": lambda ctx: {"configurable": {"user": ctx.deps}}}
    made = tool.from_langchain(configured, inject=settings)
    assert told(made, {}, deps="ann") == [("success", "ann")]
    made = tool.from_langchain(of_a_graph, inject={"state": lambda ctx: {"x": ctx.deps}})
    assert told(made, {}, deps=1) == [("success", "{'x': 1}")]


class Query(BaseModel):
    query: str


def structured(schema: Any) -> StructuredTool:
    return StructuredTool(
        name="find", description="Find.", args_schema=schema, func=lambda words: words
    )


@langchain_tool
def commanding() -> Command[Any]:
    """Change the state of the graph."""
    return Command(update={})


WORDS = {"words": {"type": "string"}}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (injected, "takes 'user'.*inject="),
        (of_a_graph, "takes 'state'.*inject="),
        (of_a_runtime, "takes 'runtime'.*inject="),
        (configured, r"takes 'config' \(a RunnableConfig\).*inject="),
        (commanding, "has a Command as its result"),
        (refund.model_copy(update={"extras": {"defer_loading": True}}), "has extras="),
        (structured(Query), "names the argument 'query', which its function does not take"),
        (
            structured({"type": "object", "properties": WORDS}),
            "needs 'words', which its schema does not require",
        ),
        (structured({"type": "object", "properties": {}}), "needs 'words', which its schema does"),
        (
            structured({"type": "objct", "properties": WORDS, "required": ["words"]}),
            "its schema is no JSON schema",
        ),
        (3, "takes a tool of LangChain"),
    ],
)
def test_what_cannot_be_carried_over_and_a_schema_that_lies_are_named(
    given: Any, error: str
) -> None:
    """M12."""
    with pytest.raises(UsageError, match=error):
        tool.from_langchain(given)


def test_inject_names_what_a_model_does_not_write() -> None:
    with pytest.raises(UsageError, match="`inject` names 'order_id'"):
        tool.from_langchain(refund, inject={"order_id": lambda ctx: "17"})
    wrong: Any = {"user": "ann"}
    with pytest.raises(UsageError, match=r"inject\['user'\] must be a function"):
        tool.from_langchain(injected, inject=wrong)


class Own(BaseTool):
    name: str = "own"
    description: str = "Its own class."

    def _run(self, words: str, run_manager: Any = None) -> str:
        return f"found {words}"


class Shelf(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(f"about {query}")]


@pytest.mark.parametrize(
    ("given", "arguments", "result"),
    [
        (Own(), {"words": "it"}, "found it"),
        (OneInputTool("one", lambda text: f"got {text}", "d"), {"__arg1": "it"}, "got it"),
        (
            RunnableLambda(lambda given: given["a"] + 1).as_tool(
                name="plus", description="d", arg_types={"a": int}
            ),
            {"a": 1},
            "2",
        ),
        (create_retriever_tool(Shelf(), "search", "Search."), {"query": "it"}, "about it"),
    ],
)
def test_each_kind_of_tool_is_a_tool(given: Any, arguments: dict[str, Any], result: str) -> None:
    assert told(tool.from_langchain(given), arguments) == [("success", result)]


def test_pictures_are_pictures() -> None:
    @langchain_tool
    def draw() -> list[dict[str, Any]]:
        """Draw."""
        url = "data:image/png;base64,aGk="
        return [{"type": "text", "text": "Here:"}, {"type": "image_url", "image_url": {"url": url}}]

    ((how, content),) = told(tool.from_langchain(draw), {})
    assert how == "success"
    assert content[0] == "Here:"
    assert isinstance(content[1], BinaryContent)
    assert content[1].data == b"hi"


def test_a_result_for_a_graph_is_an_error_that_says_that_the_tool_ran() -> None:
    @langchain_tool
    def change():  # type: ignore[no-untyped-def]  # so nobody knows what it returns
        """Change the state."""
        return Command(update={})

    ((how, content),) = told(tool.from_langchain(change), {})
    assert how == "failed"
    assert "'change' ran, but it returned Command" in content


def test_a_name_and_options_beat_those_of_the_tool() -> None:
    made: Tool[Any] = tool.from_langchain(refund, name="pay_back", idempotent=True, timeout=3)
    assert (made.name, made.effect, made.timeout) == ("pay_back", "idempotent", 3)
    assert told(made, {"order_id": "17"}) == [("success", "refunded 20 for 17")]


class Counted(TypedDict):
    """The state of a graph."""

    count: int


@langchain_tool
def book(city: str) -> str:
    """Book seats."""
    seats = interrupt({"ask": f"How many seats in {city}?"})
    return f"{seats} seats in {city} on {interrupt('Which day?')}"


@langchain_tool
async def book_later(city: str) -> str:
    """Book seats."""
    seats = interrupt({"ask": f"How many seats in {city}?"}, response_schema=list[int])
    return f"{seats} seats in {city} on {interrupt('Which day?')}"


@pytest.mark.parametrize("given", [book, book_later])
def test_each_interrupt_of_a_tool_is_a_question_to_a_person(given: Any) -> None:
    """M12."""

    def made() -> Agent:
        return desk(call(given.name, {"city": "Rome"}), tools=[given])

    first = interrupted(made().execute_sync("go"))
    (request,) = first.requests
    assert (request.kind, request.payload) == ("interrupt", {"ask": "How many seats in Rome?"})
    second = interrupted(made().resume_sync(reloaded(first.state), respond([2, 3])))
    assert second.requests[0].payload == "Which day?"
    outcome = completed(made().resume_sync(reloaded(second.state), respond("Monday")))
    assert contents(outcome.state) == [("success", "[2, 3] seats in Rome on Monday")]


@pytest.mark.parametrize("given", [book, book_later])
def test_an_answer_is_to_no_other_interrupt_after_a_crash(given: Any) -> None:
    """M12."""
    made = desk(
        call(given.name, {"city": "Rome"}), tools=[tool.from_langchain(given, idempotent=True)]
    )
    first = interrupted(made.execute_sync("go"))
    disk = CutBefore("requested")
    with pytest.raises(Crash):
        made.resume_sync(reloaded(first.state), respond([2]), journal=disk)
    second = interrupted(made.resume_sync(reloaded(disk.load())))
    assert second.requests[0].payload == "Which day?"
    outcome = completed(made.resume_sync(reloaded(second.state), respond("Monday")))
    assert contents(outcome.state) == [("success", "[2] seats in Rome on Monday")]


def test_an_answer_fits_the_schema_of_its_interrupt() -> None:
    made = desk(call("book_later", {"city": "Rome"}), tools=[book_later])
    first = interrupted(made.execute_sync("go"))
    with pytest.raises(DecisionError):
        made.resume_sync(first.state, respond("two"))


def test_a_tool_whose_interrupt_a_person_rejects_does_not_go_on() -> None:
    """M12."""
    made = desk(call("book", {"city": "Rome"}), tools=[book])
    first = interrupted(made.execute_sync("go"))
    ((how, said),) = contents(completed(made.resume_sync(first.state, reject("no"))).state)
    assert (how, "a person rejected it" in said) == ("denied", True)


@pytest.mark.parametrize("saved", [False, True])
def test_a_tool_runs_a_graph_of_its_own(saved: bool) -> None:
    """M12."""
    steps = StateGraph(Counted)
    steps.add_node("add", lambda state: {"count": state["count"] + 1})
    steps.add_edge(START, "add")
    graph = steps.compile(checkpointer=InMemorySaver() if saved else None)

    @langchain_tool
    def add(count: int) -> int:
        """Add one."""
        config: Any = {"configurable": {"thread_id": "1"}}
        return int(graph.invoke({"count": count}, config)["count"])

    assert told(tool.from_langchain(add), {"count": 1}) == [("success", "2")]


def test_a_store_is_what_inject_makes() -> None:
    """M12."""

    @langchain_tool
    def remember(what: str, store: Annotated[Any, InjectedStore()]) -> str:
        """Remember it."""
        store.put(("notes",), "1", {"what": what})
        return "kept"

    with pytest.raises(UsageError, match=r"takes 'store', which a graph of LangChain fills in"):
        tool.from_langchain(remember)
    notes = InMemoryStore()
    made = tool.from_langchain(remember, inject={"store": lambda ctx: notes})
    assert told(made, {"what": "a kettle"}) == [("success", "kept")]
    item = notes.get(("notes",), "1")
    assert item is not None
    assert item.value == {"what": "a kettle"}


def test_langchain_names_the_arguments_that_it_fills_in_by_itself() -> None:
    """The one name of LangChain without which they are not found: it is not public."""

    @langchain_tool
    def look(city: str, runtime: ToolRuntime, user: Annotated[str, InjectedToolArg]) -> str:
        """Look."""
        return city

    assert "runtime" in look._injected_args_keys
