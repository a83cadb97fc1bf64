"""What the last run of an agent, with the agents that it runs, has done and may have done."""

from __future__ import annotations

from collections.abc import Iterator

from understudy.interrupts import DoubtfulCall
from understudy.state.done_calls import DoneCall, DoneCalls, before, doubtful
from understudy.state.state_tree import StateTree

STANDS = "It has done, and this stands:"
NOT_KNOWN = "Nobody knows whether these took effect:"


def done_in(state: StateTree) -> DoneCalls:
    """What the last run of this state has done, with the agents that it runs now."""
    run = state.run
    done = DoneCalls() if run is None or run.done is None else run.done.copied()
    for child in state.children.values():
        if child.run is not None:
            done.add_agent(child.run.agent, done_in(child))
    return done


def doubts_in(state: StateTree) -> Iterator[DoubtfulCall]:
    """The calls in doubt of the last run of this state, and of the agents that it runs now."""
    run = state.run
    if run is None:
        return
    since = None if run.continues is None else run.continues.since
    for key, doubt in state.doubts.items():
        # A call of a failed run that this run continues has the id of the failed run.
        is_own = key.startswith(f"{run.run_id}.")
        if is_own or (since is not None and doubt.since >= since):
            yield doubt
    for child in state.children.values():
        yield from doubts_in(child)


def what_it_did(state: StateTree) -> str:
    """What the last run of this state has done, and what it may have done; empty if nothing."""
    run = state.run
    if run is None:
        return ""
    lines = _lines(STANDS, done_in(state))
    lines += _lines(NOT_KNOWN, doubtful(doubts_in(state), agent=run.agent))
    return "\n".join(lines)


def _lines(title: str, calls: DoneCalls) -> list[str]:
    """The calls by tool, for a model or a person."""
    if not calls:
        return []
    by_tool: dict[tuple[str, str], list[DoneCall]] = {}
    for call in calls.newest:
        by_tool.setdefault((call.agent, call.tool_name), []).append(call)
    lines = [title, *(f"- {call}" for each in by_tool.values() for call in each)]
    return [*lines, f"- and {before(calls)}"] if calls.others else lines
