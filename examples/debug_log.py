"""A debug log of an agent: what it did, when, for how long and at what cost, from its history."""

from collections.abc import Iterator
from typing import Any

from understudy import Agent, AgentRef, Runtime, ScriptedModel, call, tool
from understudy.history import HistoryEntry


@tool
def lookup(order_id: str) -> str:
    """Look up an order."""
    if order_id == "0":
        raise LookupError("there is no order 0")
    return "a kettle"


# 1. All that happened, oldest first, page by page. Reading activates no agent, and works from
#    another process on the same store, while the agent runs too.
def history(ref: AgentRef, *, page: int = 100) -> Iterator[HistoryEntry]:
    after: int | None = 0
    while after is not None:
        found = ref.history(after=after, limit=page).get(timeout=60)
        yield from found
        after = found.next


# 2. A line for each entry. `what` says which details there are.
def line(entry: HistoryEntry) -> str:
    at = "--:--:--" if entry.at is None else f"{entry.at:%H:%M:%S}"
    took = "" if entry.seconds is None else f" [{entry.seconds * 1000:.0f} ms]"
    where = " > ".join(entry.agent_path)
    about = " ".join(filter(None, (entry.tool_name, _about(entry.what, entry.detail))))
    return f"{entry.seq:>3} {at} {where} {entry.what}{took} {about}".rstrip()


def _about(what: str, detail: dict[str, Any]) -> str:
    match what:
        case "run_started" | "message_taken" | "message_queued":
            return repr(detail["text"])
        case "reply":
            cost = f"{detail['input_tokens']} + {detail['output_tokens']} tokens"
            return f"{detail['text']!r} calls {detail['calls']}, {cost}"
        case "model_asked":
            return f"{detail['key']}: {detail['answer']!r}"
        case "tool_ended":
            return f"{detail['outcome']}: {detail['text']}"
        case "run_ended":
            return f"{detail['outcome']} {detail['text']!r}"
        case "status":
            return str(detail["status"])
        case _:
            return ""


def main() -> None:
    model = ScriptedModel(
        [call("lookup", {"order_id": "0"}), call("lookup", {"order_id": "17"}), "A kettle."]
    )
    with Runtime([Agent("clerk", model, tools=[lookup])]) as runtime:
        ref = runtime.spawn("clerk", id="chat-1")
        ref.run("What did I order?").get(timeout=60)
        for entry in history(ref, page=3):
            print(line(entry))


if __name__ == "__main__":
    main()
