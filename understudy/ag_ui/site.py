"""`Site`: one endpoint, with the agents of the users' conversations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from understudy._base import security_log
from understudy._base.json_values import shown
from understudy.actors import AgentInfo, AgentRef, Runtime
from understudy.actors.verbs import VERBS
from understudy.errors import UnderstudyError, UsageError
from understudy.login import User
from understudy.login.event_stream import StreamBound
from understudy.login.problems import refused
from understudy.login.redaction import NO_REDACTION, Redaction
from understudy.state.agent_state import AgentState

SourceOf = Callable[[], Runtime]
"""A function that gives the `Runtime` or the `Cluster`."""
AgentIdOf = Callable[[User, str], str | None]
"""A function of the user and the conversation's id that gives the id of the agent; None refuses."""
ShareState = bool | Callable[[AgentState], Any]


@dataclass(frozen=True, slots=True)
class Site:
    """One endpoint, and its agents.

    Args:
        source_of: the function that gives the runtime.
        agent: the name of the definition.
        agent_id_of: the function that gives the agent of a user's conversation.
        share_state: the part of its values that clients see.
        frontend_tools: the names of the tools that pages execute.
        redaction: hides values from users.
        streams: counts the open streams of users.

    """

    source_of: SourceOf
    agent: str
    agent_id_of: AgentIdOf
    share_state: ShareState = False
    frontend_tools: frozenset[str] = frozenset()
    redaction: Redaction = NO_REDACTION
    streams: StreamBound = field(default_factory=StreamBound)

    def source(self) -> Runtime:
        """The runtime.

        Raises:
            Refused: if there is none yet.

        """
        try:
            return self.source_of()
        except (AttributeError, LookupError, UnderstudyError) as error:
            raise refused(503, "NotStarted", "The runtime is not started yet.") from error

    def ref(self, source: Runtime, user: User, thread_id: str) -> AgentRef:
        """The agent of a conversation; it may not exist yet.

        Raises:
            Refused: if the user has no such conversation, or its id is invalid.

        """
        id = self.agent_id_of(user, thread_id) if thread_id else None
        if id is None:
            raise unknown_thread()
        try:
            return source.get(id)
        except UsageError as error:
            raise refused(400, "UsageError", "The id of the conversation is too long.") from error

    async def info(self, ref: AgentRef) -> AgentInfo:
        """The info about the agent of a conversation.

        Raises:
            Refused: if it is of another definition: an application's `agent_id` may name any agent.
            UnknownAgent: if it does not exist yet.

        """
        found = await ref.info()
        if found.agent != self.agent:
            raise unknown_thread()
        return found

    def check_offered(self, offered: Collection[str]) -> None:
        """Refuse a client that brings tools which no model would get.

        Raises:
            Refused: if it does.

        """
        unknown = [name for name in offered if name not in self.frontend_tools]
        if unknown:
            raise refused(
                400,
                "UnknownTools",
                f"{self.agent!r} has no frontend tools {', '.join(map(shown, unknown[:10]))}: the "
                "application has to declare them, by frontend_tool() and frontend_tools=[...]. "
                "Nothing was done.",
            )

    def shared(self, state: AgentState) -> Mapping[str, Any] | None:
        """The part of the agent's values that clients see; None = nothing."""
        if self.share_state is False:
            return None
        found: Any = dict(state.values) if self.share_state is True else self.share_state(state)
        return {"state": found}


def own_threads(agent: str) -> AgentIdOf:
    """The ids of agents if each user has separate conversations: no id leads to another user's."""

    def id_of(user: User, thread_id: str) -> str:
        # The quoted parts have no colon, so two users, or two agents, never share an id.
        return ":".join(quote(part, safe="") for part in (agent, *user.key, thread_id))

    return id_of


def unknown_thread() -> Exception:
    """The refusal of a conversation that does not exist, or is not the user's."""
    return refused(404, "UnknownThread", "There is no such conversation.")


def need(user: User, verb: str) -> None:
    """Refuse the request if the user may not call this verb.

    Raises:
        Refused: if the user may not.

    """
    right = VERBS[verb].right
    if right not in user.may:
        security_log.note("refused", right, who=user.name)
        raise refused(
            403, "NotAllowed", f"{user.name} may not do that: it needs the right '{right}'."
        )
    if right == "read":
        security_log.note("read", verb, who=user.name)
