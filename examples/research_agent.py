"""A research agent of the standard parts: a plan, files, a reader, questions, a summary, a gate.

`python -m examples.research_agent` plays a script. `MODEL=openai:gpt-5-mini`, or another name, asks
that model. With `MODEL=local` a small one on this machine reads and summarises (`make local`
installs it); it cannot plan, so a script still does that.
"""

import os
from typing import Any

from pydantic_ai.models import Model

from examples.demo_models import problem_of_the_local_model
from understudy import (
    Agent,
    Completed,
    Decision,
    Interrupted,
    Request,
    Runtime,
    ScriptedModel,
    ToolContext,
    UsageError,
    approve,
    call,
    respond,
    tool,
)
from understudy.middleware import (
    AskUser,
    HumanInTheLoop,
    SubAgent,
    Summarization,
    TodoList,
    Workspace,
)
from understudy.models import ScriptedRequest

ARCHIVE = {
    "kettles": "Kettles are older than Rome. " + "They were first made of bronze. " * 60,
    "spouts": "Spouts came with the silversmiths. " + "They pour without a spill. " * 60,
}


# 1. Its own tools. What `search` finds is a file of the conversation; `publish` needs a person.
@tool
async def search(ctx: ToolContext, topic: str) -> str:
    """Search the archive for a topic. The page that is found is written to a file."""
    path = f"pages/{topic}.txt"
    await Workspace.of(ctx).write(path, ARCHIVE[topic])
    return f"{path}: {ARCHIVE[topic]}"


@tool
async def publish(ctx: ToolContext, path: str) -> str:
    """Publish a file."""
    text = await Workspace.of(ctx).read(path)
    print(f"  ... publishing {len(text.splitlines())} lines")
    return "published"


# 2. The agent. A small model condenses texts, and summarises older turns when there are too many.
def make_agent(planner: str | Model, small: str | Model, max_tokens: int) -> Agent:
    reader = Agent(
        "reader", small, "Say in one sentence what the text says.", description="condenses a text"
    )
    return Agent(
        "researcher",
        planner,
        "You do research in an archive, and publish a report. Plan first, ask what is unclear.",
        tools=[search, publish],
        middleware=[
            TodoList(),
            Workspace(),
            AskUser(),
            SubAgent([reader], general_purpose=False),
            Summarization(max_tokens, keep_turns=2, model=small),
            HumanInTheLoop({"publish": ["approve", "reject"]}),
        ],
    )


# 3. What the models say where no real one is asked.
def reads(topic: str) -> Any:
    return call("task", {"task_name": "reader", "instructions": ARCHIVE[topic]})


QUESTION = {"question": "For whom is it?", "kind": "one_of", "options": ["a child", "a scholar"]}
TODOS = [{"id": "read", "text": "read the archive"}, {"id": "report", "text": "write it down"}]
REPORT = "# Kettles\n\nKettles are older than Rome.\nSpouts came later.\n"
PLAN = [
    [call("write_todos", {"items": TODOS}), call("ask_user", {"questions": [QUESTION]})],
    call("search", {"topic": "kettles"}),
    reads("kettles"),
    call("search", {"topic": "spouts"}),
    reads("spouts"),
    [
        call("write_todos", {"items": [{"id": "read", "status": "completed"}], "merge": True}),
        call("write_file", {"path": "report.md", "text": REPORT}),
    ],
    call("publish", {"path": "report.md"}),
    "The report is published.",
]


def read_or_summarise(request: ScriptedRequest) -> str:
    if "<conversation>" in request.prompt:
        return "It is for a child. pages/kettles.txt is read."
    return request.prompt.partition(". ")[0] + "."


def answer(request: Request) -> Decision:
    """The person: a form for the question, a button for the approval."""
    print(f"{request.tool_name} asks: {request.payload or request.arguments}")
    if request.tool_name == "ask_user":
        return respond({QUESTION["question"]: "a child"}, by="ann")
    return approve(by="ann")


def main() -> None:
    asked = os.environ.get("MODEL", "scripted")
    planner: str | Model = ScriptedModel(PLAN)
    small: str | Model = ScriptedModel(read_or_summarise)
    if asked == "local":
        if problem := problem_of_the_local_model():
            print(f"{problem}. A script plays the model.")
        else:
            from examples.local_model import local_model  # loads a native library

            small = local_model()
    elif asked != "scripted":
        planner = small = asked

    # 4. Each answer may come days later, and in another process: see durable_agent.py.
    max_tokens = 400 if isinstance(planner, ScriptedModel) else 20_000
    with Runtime([make_agent(planner, small, max_tokens)]) as runtime:
        ref = runtime.spawn("researcher", id="kettles")
        outcome = ref.run("Write a short report on kettles, and publish it.").get()
        while isinstance(outcome, Interrupted):
            outcome = ref.resume({each.id: answer(each) for each in outcome.requests}).get()
        if not isinstance(outcome, Completed):
            raise SystemExit(outcome.explain())

        # 5. All of it is facts: the list, the files, the summary, and what was said before it.
        print(outcome.text)
        for item in TodoList.of(ref).get():
            print(f"  {item.text}: {item.status}")
        for file in Workspace.of(ref).list().get():
            print(f"  {file.path} ({file.size} bytes)")
        for entry in ref.history().get():
            if entry.what == "model_asked":
                print(f"summary: {entry.detail['answer']}")
        print(f"{outcome.usage.requests} model calls, {len(outcome.state.messages)} messages left")


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:  # of MODEL, which names no model, or one whose key is not set
        raise SystemExit(str(error)) from None
