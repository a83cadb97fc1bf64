"""Why a wait of a tool, a call of a runtime or one of a cluster has no value."""

from __future__ import annotations

from understudy.errors.base import UnderstudyError


class WaitEnded(UnderstudyError):
    """A wait of a tool ended without a value. `ctx.wait_for` raises it in every run of the tool.

    If the tool does not catch it, it is the error that the model sees as the result of the call.
    """

    name: str
    """The tool's name for the wait."""


class WaitExpired(WaitEnded):
    """Nobody answered the wait within its `timeout`."""

    def __init__(self, *, name: str) -> None:
        super().__init__(f"Nobody answered {name!r} in time", name=name)


class WaitRejected(WaitEnded):
    """The wait was answered by `reject`, so it will never have a value."""

    reason: str

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"{name!r} was rejected: {reason}", name=name, reason=reason)


class NotExtracted(UnderstudyError):
    """`extract` ended without a value. `outcome` says how the run ended instead."""

    outcome: str

    def __init__(self, *, tool: str, outcome: str) -> None:
        super().__init__(
            f"No value of {tool!r}: the run ended as {outcome}", tool=tool, outcome=outcome
        )


class PeopleUnavailable(UnderstudyError):
    """`Runtime(people=)` could not say who somebody is. Nobody's vote is taken until it can."""


class AgentNotMade(UnderstudyError):
    """`Runtime(factory=)` raised, so the agent is not activated. The next call asks the factory
    again. A run that is recorded, or waits in the queue, continues then.

    In this process, `__cause__` is the exception of the factory.
    """

    agent_id: str
    agent: str
    """The name of the definition that the factory should make."""
    cause: str

    def __init__(self, *, agent_id: str, agent: str, cause: str) -> None:
        super().__init__(
            f"The agent {agent_id!r} is not activated: Runtime(factory=) raised for the name "
            f"{agent!r}: {cause}. What it has recorded waits until it can be made",
            agent_id=agent_id,
            agent=agent,
            cause=cause,
        )


class CallLost(UnderstudyError):
    """The host of a cluster ended before it answered, so nobody knows whether the call was made.

    Only a call that must not be made twice raises it. Look at the agent before you call again.
    """

    call: str
    host: str

    def __init__(self, *, call: str, host: str) -> None:
        super().__init__(
            f"Host {host!r} ended before it answered {call}(), so nobody knows whether the call "
            "was made, and it must not be made twice. Look at the agent's state, and call again "
            "only if needed",
            call=call,
            host=host,
        )


MORE_DESCRIPTORS = (
    "Close files and connections that are not used, or raise the limit of open files "
    "(`ulimit -n`, or `LimitNOFILE=` of systemd)"
)
"""The remedy where no file descriptor is left."""


class OutOfDescriptors(UnderstudyError):
    """The process, or the machine, has no file descriptor left to open something with."""

    what: str

    def __init__(self, *, what: str) -> None:
        super().__init__(f"No file descriptor is left for {what}. {MORE_DESCRIPTORS}.", what=what)
