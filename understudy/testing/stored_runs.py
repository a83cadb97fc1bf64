"""`old_journals`: checks how stored runs continue under today's definitions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic_ai.models import Model

from understudy._base.json_values import shown
from understudy.actors import SimulatedClock
from understudy.actors.reads.export import Exported, read_export
from understudy.agent.agent import Agent
from understudy.agent.nested_runs import NestedRuns
from understudy.agent.run_environment import environment_of
from understudy.agent.runner import Runner
from understudy.errors import UnderstudyError, UsageError
from understudy.interrupts import Decision, approve
from understudy.models import ScriptedModel
from understudy.outcomes import Failed, Interrupted, Outcome, Paused
from understudy.run.definition import AgentDefinition
from understudy.run.instrument import AttemptWatch, CallWatch, GivesInstrument, Instrument
from understudy.run.run import Run
from understudy.state.agent_state import AgentState
from understudy.state.records import Record, Result, Started, innermost
from understudy.state.run_state import Call
from understudy.testing.contracts.contract import run_async

Trouble = Literal["does not load", "fails", "pauses", "waits", "asks again", "errs"]
"""The kind of a finding about a run. `does not load`: its records, or its definition, cannot be
read. `fails`: it ends as failed, or cannot be continued. `pauses`: it lacks something that it had.
`waits`: its definition leaves it to hosts that have the older definition. `asks again`: a person is
asked about a call that was already decided, or that nobody was asked about. `errs`: the model reads
that a call cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A stored run that does not continue as before under today's definitions."""

    file: str
    agent_id: str
    agent: str
    """The name of the agent's definition."""
    trouble: Trouble
    reason: str
    run_id: str = ""
    """The id of the run; empty if no run is open."""
    tool_name: str = ""
    call_key: str = ""
    """The key of the call; empty if the finding is about the run."""

    def __str__(self) -> str:
        of = f", run {self.run_id}" if self.run_id else ""
        call = f", call of {self.tool_name!r} ({self.call_key})" if self.call_key else ""
        who = f"{self.agent_id!r} ({self.agent})" if self.agent_id else "?"
        return f"{self.file}: {who}{of}{call} {self.trouble}: {self.reason}"


class OldJournal:
    """The export of an agent from an earlier version of your application.

    `str()` of it is the name of its file, for `ids=str` in a parametrized test.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return self.path.name

    def __repr__(self) -> str:
        return f"OldJournal({str(self.path)!r})"

    def check(
        self,
        agents: Iterable[Agent[Any, Any]],
        *,
        deps: Any = None,
        allowed: Collection[Trouble] = (),
    ) -> None:
        """Assert that the run continues as it would have continued when it was stored.

        Args:
            agents: today's definitions.
            deps: the deps of the agent's runs.
            allowed: the kinds of findings that do not fail the test, such as `"asks again"`.

        Raises:
            AssertionError: if there is a finding. The error lists each finding on a line.

        """
        findings = [each for each in self.under(agents, deps=deps) if each.trouble not in allowed]
        if findings:
            raise AssertionError("\n".join(map(str, findings)))

    def under(self, agents: Iterable[Agent[Any, Any]], *, deps: Any = None) -> list[Finding]:
        """Return the findings: where the agent would not continue as before under these
        definitions.

        An open run is continued as the next process would continue it. Hooks of its middleware and
        gates are called, so give its definition what your tests give it. No model is asked, and no
        body of a tool is entered: the attempt ends there. Nothing is stored.

        Args:
            agents: today's definitions.
            deps: the deps of the agent's runs.

        """
        definitions = {agent.name: agent for agent in agents}
        try:
            exported = read_export(_json(self.path))
            state = exported.state
        except UnderstudyError as error:
            return [
                Finding(
                    file=self.path.name,
                    agent_id="",
                    agent="",
                    trouble="does not load",
                    reason=str(error),
                )
            ]
        agent = definitions.get(exported.agent)
        if agent is None:
            known = ", ".join(sorted(definitions)) or "none"
            reason = f"no definition has this name; there are: {known}"
            return [_Look(self, exported, state).finding("does not load", reason)]
        look = _Look(self, exported, state)
        return run_async(lambda: look.findings(agent, deps))


def old_journals(pattern: str, *, root: str | Path = ".") -> list[OldJournal]:
    """Return the exports of agents in files, to check them under today's definitions.

    `understudy export` or `Runtime.export` writes the files. Use it to parametrize a test:
    `@pytest.mark.parametrize("journal", old_journals("tests/journals/*.json"), ids=str)`.

    Args:
        pattern: the pattern of the files, as in `Path.glob`.
        root: the folder of the pattern; by default the current folder.

    Raises:
        UsageError: if there is no such file, because a test without files would pass.

    """
    found = sorted(path for path in Path(root).glob(pattern) if path.is_file())
    if not found:
        raise UsageError(f"old_journals: no file is {pattern!r} in {str(Path(root).resolve())!r}")
    return [OldJournal(path) for path in found]


def _json(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"This is no JSON: {error}") from error
    if not isinstance(data, Mapping):
        raise UsageError(f"This is not an exported agent, but {shown(data)}")
    return data


# ------------------------------------------------------------------------------ the attempt


class _Reached(BaseException):
    """The end of an attempt that has reached a model or a body: the rest is not looked at."""


class _Notes:
    """A journal that notes the records of an attempt until a body would be entered."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            own = innermost(record)
            # It is the last record before the body: a run that continues from here is unchanged.
            if isinstance(own, Started):
                raise _Reached
            self.records.append(own)

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        return


def _reached(_: object) -> NoReturn:
    raise _Reached


_UNASKED = ScriptedModel(_reached, name="a model that is not asked")


class _UnaskedRuns(NestedRuns):
    def _models_of(self, definition: AgentDefinition) -> tuple[Model, ...]:
        self._models[definition] = (_UNASKED,)
        return (_UNASKED,)


class _UnaskedRunner(Runner):
    """A runner that continues runs without their models, so that no API key is needed."""

    def __init__(self, definition: AgentDefinition) -> None:
        super().__init__(definition)
        self._models = (_UNASKED,)
        self._children = _UnaskedRuns()


class _Unheard(AttemptWatch, CallWatch):
    trace = None

    def ended(self, outcome: object) -> None:
        return


class _Unasked(Instrument[Run], GivesInstrument):
    """An instrument that replaces each model, also models that hooks ask, by one that is not
    asked.
    """

    def instrument(self) -> Instrument[Any]:
        return self

    def attempt(self, run: Run) -> AbstractContextManager[AttemptWatch]:
        return nullcontext(_Unheard())

    def tool_call(self, run: Run, call: Call) -> AbstractContextManager[CallWatch]:
        return nullcontext(_Unheard())

    def model_call(self, run: Run, model: Model) -> AbstractContextManager[Model]:
        return nullcontext(_UNASKED)

    def follow(self, ledger: object) -> None:
        return

    def restarted(self, ledger: object) -> None:
        return


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at an exported agent."""

    journal: OldJournal
    exported: Exported
    state: AgentState

    def finding(self, trouble: Trouble, reason: str, tool: str = "", call: str = "") -> Finding:
        run = self.state.run
        return Finding(
            file=self.journal.path.name,
            agent_id=self.exported.agent_id,
            agent=self.exported.agent,
            trouble=trouble,
            reason=reason,
            run_id="" if run is None or run.over else run.run_id,
            tool_name=tool,
            call_key=call,
        )

    async def findings(self, agent: Agent[Any, Any], deps: Any) -> list[Finding]:
        runner, run = _UnaskedRunner(agent.definition), self.state.run
        if run is None or run.over:
            return [each async for each in self._of_the_next_run(runner)]
        found: list[Finding] = []
        definition = agent.definition
        if definition.on_version == "wait" and run.fingerprint != definition.fingerprint:
            found.append(self.finding("waits", "its definition is another one, and says 'wait'"))
        found += await self._attempt(runner, None, deps)
        if not found:
            approved: dict[str, Decision] = {
                each.id: approve()
                for each in self.state.requests
                if each.kind == "approval" and each.approval is None and "approve" in each.allowed
            }
            if approved:
                found += await self._attempt(runner, approved, deps)
        return found

    async def _of_the_next_run(self, runner: Runner) -> Any:
        """The finding that a message, or a retry, would meet."""
        try:
            await runner.check_start(self.state.copied())
            if self.state.run is not None and self.state.run.has_failed:
                runner.check_goes_on(self.state.copied())
        except UsageError as error:
            yield self.finding("fails", str(error))

    async def _attempt(
        self, runner: Runner, decisions: Mapping[str, Decision] | None, deps: Any
    ) -> list[Finding]:
        """Continue the run until a model or a body is reached."""
        notes, run = _Notes(), self.state.run
        assert run is not None, "only called where a run is open"
        environment = environment_of(
            deps=deps,
            pause_when=(lambda: False) if run.pause_when_given else None,
            clock=SimulatedClock(self._now()),
            journal=notes,
            telemetry=_Unasked(),
        )
        # The decision of a person is bound to the id of the agent.
        environment = replace(environment, agent_id=self.exported.agent_id)
        outcome: Outcome | None = None
        try:
            outcome = await runner.resume(
                self.state.copied(), decisions, {}, environment=environment
            )
        except _Reached:
            pass
        except UnderstudyError as error:
            return [self.finding("fails", str(error))]
        finally:
            await environment.shared.close()
        return [*self._errors(notes), *self._of_outcome(outcome)]

    def _errors(self, notes: _Notes) -> Iterator[Finding]:
        for record in notes.records:
            if isinstance(record, Result) and record.part.outcome == "failed":
                part = record.part
                yield self.finding("errs", str(part.content), part.tool_name, record.call_key)

    def _of_outcome(self, outcome: Outcome | None) -> Iterator[Finding]:
        if isinstance(outcome, Failed):
            yield self.finding("fails", outcome.error.message)
        elif isinstance(outcome, Paused) and outcome.reason != self.state.pause:
            yield self.finding("pauses", outcome.reason)
        elif isinstance(outcome, Interrupted):
            before = {each.id for each in self.state.requests}
            for each in outcome.requests:
                if each.id not in before:
                    reason = each.asked_again or _why_asked(each.kind)
                    yield self.finding("asks again", reason, each.tool_name, each.call_key)

    def _now(self) -> datetime:
        """The time of its last record, at which no wait is over."""
        times = [record.at for record in self.exported.records if record.at is not None]
        return max(times, default=SimulatedClock().now())


def _why_asked(kind: str) -> str:
    return "nobody knows what the call did" if kind == "doubt" else "a person was not asked before"
