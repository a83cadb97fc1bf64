"""Random lives of agents: what is careful lives, and what is not is found and shrunk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from understudy import (
    Agent,
    Request,
    ScriptedModel,
    ToolContext,
    UsageError,
    call,
    tool,
)
from understudy.journal import Loaded, MemoryStore, Store
from understudy.models.scripted_model import ScriptedRequest
from understudy.testing import Effects, FakePeople
from understudy.testing.machine import AgentMachine
from understudy.trust import approval

pytestmark = pytest.mark.slow


def desk(
    effects: Effects, *, idempotent: bool = False, gated: Any = True, version: str = ""
) -> Agent[Any, Any]:
    """An agent that pays for what it is asked for, once."""

    @tool(idempotent=idempotent, version=version)
    def pay(ctx: ToolContext, order: str) -> str:
        """Pay for an order."""
        effects.add(f"paid {order}", key=ctx.call_key)
        return "paid"

    def says(request: ScriptedRequest) -> object:
        return "Done." if request.results else call("pay", {"order": request.prompt})

    return Agent(
        "desk", ScriptedModel(says), tools=[pay], interrupt_on={"pay": gated} if gated else None
    )


class Careful(AgentMachine):
    gated = ("pay",)

    def agents(self, version: int) -> Sequence[Agent[Any, Any]]:
        return [desk(self.effects)]


def live(
    machine: type[AgentMachine], *, lives: int = 10, steps: int = 15, shrinks: bool = True
) -> None:
    """Some lives, the same each time."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=lives,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
        ),
    )


def found(machine: type[AgentMachine], *, shrinks: bool = False) -> tuple[str, list[str]]:
    """What is found in lives of a machine, and the steps to it; the fewest, if it is shrunk."""
    with pytest.raises(AssertionError) as caught:
        live(machine, lives=100, steps=20, shrinks=shrinks)
    notes = "\n".join(getattr(caught.value, "__notes__", ()))
    steps = [line.strip() for line in notes.splitlines() if line.strip().startswith("state.")]
    invariants = ("no_", "the_", "teardown")
    return str(caught.value), [
        step for step in steps if not step.removeprefix("state.").startswith(invariants)
    ]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_careful_agent_lives(store: Any) -> None:
    live(type("Lives", (Careful,), {"store": store}))


class Careless(AgentMachine):
    """It says that to pay twice is to pay once, and its service does not."""

    gated = ("pay",)

    def agents(self, version: int) -> Sequence[Agent[Any, Any]]:
        return [desk(self.effects, idempotent=True)]


def test_an_agent_that_pays_twice_is_found_and_shown_in_few_steps() -> None:
    text, steps = found(Careless, shrinks=True)
    assert text.startswith("'paid Order 1, please.' has happened 2 times")
    assert ">>> killed         after effect 'paid Order 1, please.'" in text
    assert 3 <= len(steps) <= 5, steps
    assert any("approve" in step for step in steps)
    assert any("crash" in step for step in steps)


class Ungated(AgentMachine):
    gated = ("pay",)

    def agents(self, version: int) -> Sequence[Agent[Any, Any]]:
        return [desk(self.effects, gated=None)]


def test_a_call_that_nobody_approved_is_found() -> None:
    text, steps = found(Ungated, shrinks=True)
    assert "of 'pay' ran, and nobody approved it" in text
    assert len(steps) == 1, steps


class Versions(AgentMachine):
    """The second version of the definition has no gate."""

    gated = ("pay",)
    versions = 2

    def agents(self, version: int) -> Sequence[Agent[Any, Any]]:
        return [desk(self.effects, gated=version == 0)]


def test_a_version_that_gates_no_longer_is_found() -> None:
    text, steps = found(Versions)
    assert "of 'pay' ran, and nobody approved it" in text
    assert "state.deploy(version=1)" in steps


class NewTools(AgentMachine):
    gated = ("pay",)
    versions = 3

    def agents(self, version: int) -> Sequence[Agent[Any, Any]]:
        return [desk(self.effects, version=f"{version}")]


def test_agents_live_on_over_deploys_of_other_versions_of_their_tools() -> None:
    live(NewTools)


class Edits(Careful):
    def edited(self, request: Request) -> Mapping[str, Any]:
        return {"order": f"{request.arguments['order']} (edited)"}


def test_persons_edit_calls() -> None:
    class Forbidden(Edits):
        def teardown(self) -> None:
            super().teardown()
            if any(each.what.endswith("(edited)") for each in self.effects):
                raise AssertionError("edited")

    text, steps = found(Forbidden)
    assert text == "edited"
    assert any(step.startswith("state.edit(") for step in steps)


class Votes(AgentMachine):
    gated = ("pay",)
    voters = ("ann", "bob")
    runtime = {"people": FakePeople({"ann": ["lead"], "bob": ["lead"]})}  # noqa: RUF012

    def agents(self, version: int) -> Sequence[Agent[Any, Any]]:
        return [desk(self.effects, gated={"approval": approval({"lead": 2})})]


def test_persons_vote() -> None:
    live(Votes)


class Two(AgentMachine):
    gated = ("pay",)

    def agents(self, version: int) -> Sequence[Agent[Any, Any]]:
        def other(effects: Effects) -> Agent[Any, Any]:
            @tool(read_only=True)
            def look(order: str) -> str:
                """Look at an order."""
                return "open"

            def says(request: ScriptedRequest) -> object:
                return "Open." if request.results else call("look", {"order": request.prompt})

            return Agent("looker", ScriptedModel(says), tools=[look])

        return [desk(self.effects), other(self.effects)]


def test_several_agents_live_beside_each_other() -> None:
    live(Two)


class Forgetful(MemoryStore):
    """A host that opens it finds nothing."""


class Forgets(Careful):
    def new_store(self) -> Store:
        return Forgetful()


def test_an_agent_that_is_lost_is_found() -> None:
    text, _ = found(Forgets)
    assert "desk is lost" in text


class LoadsLess(MemoryStore):
    """What is read lacks the last record, where something was said."""

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        loaded = await super().load_part(agent_id, after, limit)
        if loaded is None or after or len(loaded.records) < 5:
            return loaded
        return Loaded(loaded.agent, loaded.first_seq, loaded.records[:-2])


class Differs(Careful):
    def __init__(self) -> None:
        self._kept = LoadsLess()
        super().__init__()

    def new_store(self) -> Store:
        self._kept = copy(self._kept)
        for name in ("journal", "release", "claim", "claim_to_keep", "compact", "delete"):
            vars(self._kept).pop(name, None)
        vars(self._kept).pop("add_trust", None)
        return self._kept


def test_a_state_that_is_not_what_is_stored_is_found() -> None:
    text, _ = found(Differs)
    assert "the state is not what is stored" in text


@pytest.mark.postgres
@pytest.mark.faults
def test_agents_live_on_two_hosts(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_POSTGRESQL", postgres_url)
    live(type("Lives", (Careful,), {"store": "postgresql"}), lives=5)


def test_a_machine_without_agents_is_refused() -> None:
    class Nobody(AgentMachine):
        pass

    with pytest.raises(UsageError, match="Nobody does not say which agents live"):
        Nobody()


def test_a_machine_that_has_nothing_to_say_is_refused() -> None:
    with pytest.raises(UsageError, match="`prompts` and `spans` must not be empty"):
        type("Silent", (Careful,), {"prompts": ()})


def test_without_hypothesis_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import understudy.testing\n"
        "try:\n    understudy.testing.AgentMachine\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=dict(os.environ),
    )
    assert "UsageError AgentMachine needs Hypothesis" in done.stdout, done.stderr
