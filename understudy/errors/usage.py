"""Errors of the caller: a wrong argument, raised before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from understudy.errors.base import UnderstudyError

if TYPE_CHECKING:
    from collections.abc import Sequence


class UsageError(UnderstudyError):
    """An argument is wrong. It is raised before anything runs."""


class DecisionError(UsageError):
    """A decision does not fit: its request is not pending, or does not allow this decision.

    A request that is unknown, stale or withdrawn is not pending. Nothing ran, the requests are
    still pending, and a valid decision is still accepted. If the request already has another
    decision, the error is `NotInterrupted`.
    """

    request_id: str | None

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message, request_id=request_id)


class VoteRefused(DecisionError):
    """This person may not vote on the request. Nothing is recorded, and the request stays pending.

    The person lacks the roles, has asked for the call, or is not known to `Runtime(people=)`.
    """

    request_id: str
    person: str
    """The name that the decision had; empty if it had no name."""

    def __init__(self, message: str, *, request_id: str, person: str) -> None:
        UsageError.__init__(self, message, request_id=request_id, person=person)


class ApprovalNeeded(UsageError):
    """Persons must agree before this is done, because `Runtime(protect=)` says so. Nothing was
    done.

    They vote with `runtime.vote(request_id, approve(by=...))`. Then make the same call again, as
    the same person and with the same arguments. It is then done, once.
    """

    request_id: str
    verb: str
    missing: str
    """The votes that are missing, in words; empty if it was rejected."""

    def __init__(self, *, request_id: str, verb: str, about: str, missing: str) -> None:
        why = f"{missing} is missing" if missing else "it was rejected"
        super().__init__(
            f"{about}: persons must agree, and {why} (request {request_id!r}). They vote by "
            "runtime.vote(), the page of administration, or `understudy vote`. Then make the "
            "same call again",
            request_id=request_id,
            verb=verb,
            missing=missing,
        )


class RequestChanged(DecisionError):
    """The request has changed since the decision was made: its digest is not the expected one.

    Nothing ran. Show the request as it is now, and ask again.
    """

    request_id: str
    digest: str
    expected: str

    def __init__(self, *, request_id: str, digest: str, expected: str) -> None:
        UsageError.__init__(
            self,
            f"Request {request_id!r} is not what was shown: its digest is {digest!r}, not "
            f"{expected!r}: show it as it is now, and decide again",
            request_id=request_id,
            digest=digest,
            expected=expected,
        )


class RequestExpired(DecisionError):
    """The decision comes too late, because the time of its request is over. Nothing ran by it."""

    request_id: str
    expires_at: str
    """The time at which the request expired, in ISO 8601."""

    def __init__(
        self, *, request_id: str, expires_at: str, on_expiry: Literal["reject", "stop"]
    ) -> None:
        counts = "counts as rejected" if on_expiry == "reject" else "stops the run"
        UsageError.__init__(
            self,
            f"Request {request_id!r} expired at {expires_at} and {counts}: call resume(state) "
            "without a decision about it",
            request_id=request_id,
            expires_at=expires_at,
        )


class NotInterrupted(UsageError):
    """There is nothing to continue or to decide any more.

    No run is open, the run already continues, or the request has another decision already. If the
    request is not pending, the error is `DecisionError`.
    """


class AlreadyDecided(NotInterrupted):
    """The request already has another decision, which cannot be changed."""

    request_id: str
    decision: str
    """The type of the existing decision; `failed` if the call failed elsewhere and no person
    decided."""

    def __init__(self, *, request_id: str, decision: str) -> None:
        super().__init__(
            f"Request {request_id!r} was answered before, with {decision!r}: that decision cannot "
            "be changed",
            request_id=request_id,
            decision=decision,
        )


class MissingValue(UsageError):
    """The instructions read `{key}`, and the agent's values have no such key."""

    key: str
    agent: str

    def __init__(self, *, key: str, agent: str) -> None:
        super().__init__(
            f"The instructions of agent {agent!r} read {{{key}}}, but its values hold no {key!r}: "
            f"give AgentState(values={{{key!r}: ...}}), or write {{{key}?}} if it may be absent.",
            key=key,
            agent=agent,
        )


class SchemaVersionError(UsageError):
    """Stored data has a format that this version of the library cannot read. Nothing is changed.

    The format is newer or older than all formats that it reads. Or it has the same number but was
    written before that format was released, or something was taken out of it.
    """

    version: object
    """The version of the data's format; None if the data does not say."""
    known: int
    """The newest version of the format that this library reads."""
    what: str
    library: str
    """The version of the library that wrote the data; empty if the data does not say."""
    format: str
    """The fingerprint of the data's format; empty if the data does not say."""
    differences: list[str]
    """The parts of the format that are missing here, or not known here."""

    def __init__(
        self,
        *,
        version: object,
        known: int,
        what: str = "state",
        library: str = "",
        format: str = "",
        differences: Sequence[str] = (),
        can_upgrade: bool = False,
    ) -> None:
        by = f" by understudy {library} (format {version}, {format})" if library else ""
        is_newer = version is not None and not (isinstance(version, int) and version <= known)
        if can_upgrade:
            text = (
                f"This {what} has format {version!r}, older than {known}: open it once by a "
                "Runtime of this understudy, which upgrades it."
            )
        elif is_newer:
            text = (
                f"This {what} was written{by} in format {version!r}, and this understudy reads "
                f"formats up to {known}: upgrade understudy."
            )
        else:
            text = (
                f"This {what} was written{by} in another format than this understudy reads "
                f"({_some(differences) or f'{version!r} instead of {known}'}): use it with the "
                f"version that wrote it, or begin with another {what}."
            )
        super().__init__(
            text,
            version=version,
            known=known,
            what=what,
            library=library,
            format=format,
            differences=list(differences),
        )


def _some(differences: Sequence[str]) -> str:
    more = len(differences) - 3
    return "; ".join([*differences[:3], *([f"and {more} more"] if more > 0 else [])])


class UnknownAgent(UsageError):
    """There is no agent with this id, in memory or in the store."""

    agent_id: str
    deleted_at: str | None
    """The time of its deletion, in ISO 8601; None if it was never deleted or the store keeps no
    trace."""
    deleted_by: str | None
    """The person who deleted it; None if nobody was named."""

    def __init__(
        self, *, agent_id: str, deleted_at: str | None = None, deleted_by: str | None = None
    ) -> None:
        by = "" if deleted_by is None else f" by {deleted_by}"
        gone = "" if deleted_at is None else f" any more, it was deleted at {deleted_at}{by}"
        super().__init__(
            f"There is no agent {agent_id!r}{gone}: create it with spawn(agent, id={agent_id!r})",
            agent_id=agent_id,
            deleted_at=deleted_at,
            deleted_by=deleted_by,
        )


class SearchOff(UsageError):
    """The store has no index of requests and conversations, so it cannot be searched."""

    def __init__(self) -> None:
        super().__init__(
            "search over requests and conversations is off: turn it on by Runtime(search=True)"
        )


class UnknownMessage(UsageError):
    """The agent has no message with this id: it was never sent, or was cancelled before a run took
    it.
    """

    agent_id: str
    message_id: str

    def __init__(self, *, agent_id: str, message_id: str, is_cancelled: bool = False) -> None:
        why = (
            "it was never accepted, or it was cancelled: nothing has run. Send it with a "
            "`message_id` of your own"
        )
        super().__init__(
            f"Agent {agent_id!r}: message {message_id!r} is cancelled, and no run takes it"
            if is_cancelled
            else f"Agent {agent_id!r} has no message {message_id!r}: {why}",
            agent_id=agent_id,
            message_id=message_id,
        )


class OtherRun(UsageError):
    """A call named a run that is not the agent's open run, so the call did nothing."""

    agent_id: str
    run_id: str
    open_run: str | None

    def __init__(self, *, agent_id: str, run_id: str, open_run: str | None) -> None:
        there = "no run is open" if open_run is None else f"the open run is {open_run!r}"
        super().__init__(
            f"Run {run_id!r} of agent {agent_id!r} is not open: {there}. Nothing was done",
            agent_id=agent_id,
            run_id=run_id,
            open_run=open_run,
        )


class NoProgress(UsageError):
    """Several retries of a failed run in a row got no further than the run before them."""

    agent: str
    run_id: str
    """The id of the last of these runs."""
    retries: int

    def __init__(self, *, agent: str, run_id: str, retries: int) -> None:
        super().__init__(
            f"Agent {agent!r}: {retries} retries in a row failed before they got any further, the "
            f"last one as run {run_id!r}. Remove the cause, then begin anew with a message",
            agent=agent,
            run_id=run_id,
            retries=retries,
        )


class OtherWorkflow(UsageError):
    """A failed run cannot be continued, because its workflow had other agents or another order."""

    agent: str
    was: str
    now: str

    def __init__(self, *, agent: str, was: str, now: str) -> None:
        super().__init__(
            f"The workflow {agent!r} was {was} when its run failed and is {now} now: retry with "
            "the definition that it had, or begin anew with a message",
            agent=agent,
            was=was,
            now=now,
        )


class OtherAgent(UsageError):
    """The agent with this id has another definition. It is left unchanged."""

    agent_id: str
    agent: str
    wanted: str

    def __init__(self, *, agent_id: str, agent: str, wanted: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} is a {agent!r} already, not this {wanted!r}: use another id, or "
            "runtime.get(id)",
            agent_id=agent_id,
            agent=agent,
            wanted=wanted,
        )


class UnknownToken(UsageError):
    """No wait has this token: it is malformed, from another store, or of an agent that is gone.

    The error does not tell these cases apart. The token is a secret, so no part of it is in the
    message.
    """

    def __init__(self) -> None:
        super().__init__("No wait of a tool has this token")


class Expired(UsageError):
    """The wait of this token is over, so the answer comes too late. Nothing is recorded."""

    agent_id: str
    name: str

    def __init__(self, *, agent_id: str, name: str) -> None:
        super().__init__(
            f"The wait {name!r} of agent {agent_id!r} is over: this answer comes too late",
            agent_id=agent_id,
            name=name,
        )


class ForkedRuntime(UsageError):
    """The runtime belongs to the parent of this forked process. Its event loop is not here.

    The same error is raised by what its calls have returned: a future that was pending at the fork,
    a feed, a list.
    """

    def __init__(self) -> None:
        super().__init__(
            "This runtime belongs to the parent of this forked process: create a Runtime after "
            "the fork"
        )


class LoopNotRunning(UsageError):
    """The event loop that has to answer does not run, so no answer comes.

    `async with Runtime(...)` uses the loop on which it is entered. If the loop has not run for a
    second while a caller waits for it, it counts as not running.
    """

    is_closed: bool

    def __init__(self, *, is_closed: bool) -> None:
        state = "is closed" if is_closed else "does not run"
        super().__init__(
            f"The event loop that has to answer {state}. Use a runtime while the loop runs on "
            "which it was entered (with pytest-asyncio, give the fixture and the tests the same "
            "`loop_scope`), or enter it by `with Runtime(...)`, which runs a loop in a thread of "
            "its own.",
            is_closed=is_closed,
        )


class WouldDeadlock(UsageError):
    """Waiting here would block the event loop that has to answer, because it runs in this thread.

    It is raised at once, before anything is sent. A caller on another loop, such as a notebook's,
    may wait. A wait that times out raises `TimeoutError`.
    """

    what: str
    remedy: str

    def __init__(self, *, what: str, remedy: str) -> None:
        super().__init__(
            f"{what} would block the event loop that runs in this thread: {remedy}.",
            what=what,
            remedy=remedy,
        )
