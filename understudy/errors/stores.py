"""Errors of the journal and of the store under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.errors.base import UnderstudyError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class JournalFailed(UnderstudyError):
    """The journal refused a record, so the run stopped at once. Earlier records are kept.

    The caller gets it as an exception, as after a crash. Continue from the journal.
    """


class StoreError(JournalFailed):
    """The store failed, or this runtime may not use it."""


class StoreInUse(StoreError):
    """The database serves one runtime, and another runtime has it open.

    If another runtime owns a single agent, the error is `OwnedElsewhere`.
    """

    path: str

    def __init__(self, *, path: str, holder: str = "") -> None:
        by = f" ({holder})" if holder else ""
        super().__init__(
            f"{path!r} is in use by another runtime{by}: this store serves one runtime. "
            "Stop that one, or let both use a PostgreSQL store.",
            path=path,
            holder=holder,
        )


class StoreUnavailable(StoreError):
    """The database cannot be reached, or is locked. The operation is retried for some time."""

    cause: str

    def __init__(self, *, cause: str) -> None:
        super().__init__(
            f"The store cannot be reached: {cause}. Runs wait and retry; none continues without "
            "its records.",
            cause=cause,
        )


class StoreBroken(StoreError):
    """The store cannot be used until it is repaired. The message says how."""

    cause: str
    is_final: bool
    """Whether this process does not retry. After an I/O error it is unknown what is on disk."""

    def __init__(self, *, cause: str, remedy: str, is_final: bool = False) -> None:
        super().__init__(
            f"The store cannot be used: {cause}. {remedy}",
            cause=cause,
            remedy=remedy,
            is_final=is_final,
        )


class StoreDamaged(StoreBroken):
    """Stored data cannot be read."""

    what: str

    def __init__(self, *, what: str, cause: str) -> None:
        UnderstudyError.__init__(
            self,
            f"The store is damaged: {what} cannot be read ({cause}). Restore it from a backup; "
            "what can still be read is not affected.",
            what=what,
            cause=cause,
            is_final=False,
        )


class OwnedElsewhere(StoreError):
    """Another live runtime owns this agent, and cannot be asked. Send to the agent there.

    It cannot be asked because that runtime or this one has `any_host=False`.
    """

    agent_id: str
    host: str
    must_post: bool = False
    """Whether this runtime must not run the agent. Only this process knows it: it is not stored."""

    def __init__(self, *, agent_id: str, host: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} is owned by {host!r}: send to it there, or wait until that "
            "runtime stops or its lease ends",
            agent_id=agent_id,
            host=host,
        )


class UnfitHost(StoreError):
    """This runtime must not run this agent, and no live runtime can run it.

    This runtime lacks a label that the agent needs, has an older definition than the open run, is
    being drained, or starts no calls because it does not have the rules of the store. The agent is
    unchanged. A host that fits continues it.
    """

    agent_id: str
    agent: str
    """The name of the agent's definition."""
    missing: list[str]
    """The labels that the agent needs and this runtime lacks."""
    version: str | None
    """The fingerprint of the definition that began the open run, if that is the reason; None
    otherwise."""
    draining: bool
    held: str
    """The reason why no call may start at this runtime, such as rules that are older than the
    store's.

    Empty if that is not the reason.
    """

    def __init__(
        self,
        *,
        agent_id: str,
        agent: str,
        missing: Collection[str] = (),
        version: str | None = None,
        waits: bool = False,
        draining: bool = False,
        held: str = "",
    ) -> None:
        super().__init__(
            f"Agent {agent_id!r} ({agent!r}) "
            + _why_unfit(sorted(missing), version, waits=waits, held=held),
            agent_id=agent_id,
            agent=agent,
            missing=sorted(missing),
            version=version,
            waits=waits,
            draining=draining,
            held=held,
        )


def _why_unfit(missing: Sequence[str], version: str | None, *, waits: bool, held: str) -> str:
    labels = ", ".join(map(repr, missing))
    if missing and version is None:
        return (
            f"needs a host with {labels}. This runtime lacks a label, and no host with all labels "
            f"can be reached: start a host with Runtime(labels={{{labels}}}) and this definition"
        )
    if version is None and held:
        return (
            f"is not taken by this runtime, because no call may start here ({held}), and no "
            "other runtime that could run it can be reached: start a runtime with the rules of "
            "the store"
        )
    if version is None:
        return (
            "is not taken by this runtime, because it is being drained, and no other runtime "
            "that could run it can be reached: send to it when another runtime has started"
        )
    start = "start one"
    if missing:
        start = f"start one with Runtime(labels={{{labels}}}), which this one has not"
    what, remedy = "is older", "a higher `version`"
    if waits:
        what, remedy = "does not continue those of others", "on_version='newest'"
    return (
        f"has a run that was begun by another definition ({version}); the one of this runtime "
        f"{what}, and no other runtime that could go on with it can be reached: {start}, or give "
        f"this definition {remedy}"
    )


class Fenced(StoreError):
    """The agent has a later epoch, so code with the earlier epoch may not write to it any more.

    Usually another runtime has taken the agent over. That is an orderly end: the agent continues
    there, and the next call to it here tries to claim it again. Or this runtime has abandoned the
    code that gets this error, because the code ignored its cancellation.
    """

    agent_id: str

    def __init__(self, *, agent_id: str, why: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} is no longer owned by this runtime: {why}",
            agent_id=agent_id,
            why=why,
        )


class StoreConflict(StoreError):
    """A record's number is not the next number: two writers use one epoch. That is a defect."""

    agent_id: str

    def __init__(self, *, agent_id: str, expected: int, got: int) -> None:
        super().__init__(
            f"Agent {agent_id!r}: the next record must be number {expected}, got {got}",
            agent_id=agent_id,
            expected=expected,
            got=got,
        )


class RecordRefused(StoreError):
    """No store accepts this record. Other records are not affected."""

    kind: str

    def __init__(self, *, kind: str, why: str) -> None:
        super().__init__(f"A record of kind {kind!r} cannot be stored: {why}", kind=kind, why=why)
