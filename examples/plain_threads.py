"""Several threads and one runtime: workers wait for outcomes, another thread decides."""

import queue
import re
import threading
from typing import Any, NamedTuple

import pykka
from pydantic_ai.messages import ToolReturnPart

from understudy import (
    Agent,
    AgentRef,
    Completed,
    Interrupted,
    Outcome,
    Runtime,
    ScriptedModel,
    approve,
    call,
    reject,
    tool,
)
from understudy.actors import Future
from understudy.models import ScriptedRequest

SECONDS = 60
counting, counted = threading.Event(), threading.Event()


# 1. Plain tools run in threads of the runtime, so they may block.
@tool
def refund(order_id: str, amount: float) -> str:
    """Pay money back."""
    return f"refunded {amount:.2f} for order {order_id}"


@tool
def count_stock() -> str:
    """Count what is in store."""
    counting.set()
    counted.wait(SECONDS)
    return "12 kettles"


def clerk(request: ScriptedRequest) -> Any:
    """Plays the model: it calls a tool, then reports its result."""
    for part in request.messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            return "was denied" if part.outcome == "denied" else part.model_response_str()
    if found := re.search(r"(\d+) for order (\d+)", request.prompt):
        return call("refund", {"order_id": found[2], "amount": float(found[1])})
    return call("count_stock")


class Question(NamedTuple):
    ref: AgentRef
    asked: Interrupted
    answered: queue.SimpleQueue[Future[Outcome]]


def work(
    ref: AgentRef, task: str, questions: queue.Queue[Question | None], done: dict[str, Outcome]
) -> None:
    # 3. Each worker blocks in its own thread until its run has an outcome. If the run waits for a
    #    person, the worker passes the question on, and waits for the outcome after the answer.
    outcome = ref.run(task).get(timeout=SECONDS)
    while isinstance(outcome, Interrupted):
        question = Question(ref, outcome, queue.SimpleQueue())
        questions.put(question)
        outcome = question.answered.get(timeout=SECONDS).get(timeout=SECONDS)
    done[ref.id] = outcome


def decide(questions: queue.Queue[Question | None]) -> None:
    # 4. One thread decides for all, as the questions come. It does not wait for the runs.
    while (question := questions.get(timeout=SECONDS)) is not None:
        decisions = {
            request.id: approve(by="boss")
            if request.arguments["amount"] <= 100
            else reject("Too much.", by="boss")
            for request in question.asked.requests
        }
        question.answered.put(question.ref.resume(decisions))


def main() -> None:
    support = Agent(
        "support",
        ScriptedModel(clerk),
        tools=[refund, count_stock],
        interrupt_on={"refund": True},
    )
    tasks = {
        "ann": "Please refund 20 for order 17.",
        "bob": "Please refund 900 for order 18.",
        "carol": "Please refund 40 for order 19.",
    }
    questions: queue.Queue[Question | None] = queue.Queue()
    done: dict[str, Outcome] = {}

    # 2. The runtime has an event loop in a thread of its own; any other thread may call it.
    with Runtime([support]) as runtime:
        decider = threading.Thread(target=decide, args=(questions,))
        workers = [
            threading.Thread(
                target=work, args=(runtime.spawn("support", id=name), task, questions, done)
            )
            for name, task in tasks.items()
        ]
        for thread in (decider, *workers):
            thread.start()
        for thread in workers:
            thread.join()
        questions.put(None)
        decider.join()
        assert runtime.pending().get(timeout=SECONDS) == [], "all requests are answered"
        for name in tasks:
            (record,) = runtime.get(name).decisions().get(timeout=SECONDS)
            decision, outcome = record.decision, done[name]
            assert isinstance(outcome, Completed), outcome
            print(f"{name}: {decision.type} by {decision.by}: {outcome.text}")

        # 5. A wait with a timeout. When it has passed the run continues, and one can wait again.
        future = runtime.get("ann").run("How much do we have in store?")
        counting.wait(SECONDS)
        try:
            future.get(timeout=0.01)
        except pykka.Timeout:
            print(f"ann is still {runtime.get('ann').status().value}")
        counted.set()
        print(f"ann: {future.get(timeout=SECONDS).explain()}")

    # 6. Leaving the block stops the agents, each after the step in progress is recorded.
    status = runtime.status()
    print(f"the runtime has ended: {status.running} runs, {status.abandoned_threads} threads left")


if __name__ == "__main__":
    main()
