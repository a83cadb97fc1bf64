"""`Rule`: which requests are notified by which channels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias, get_args

from understudy._base.json_values import checked_callable, shown
from understudy._base.request_timing import Seconds, checked_span
from understudy.errors import UsageError
from understudy.interrupts import Request
from understudy.notify.channels import Channel
from understudy.notify.notice import WHAT, Show, What

Names: TypeAlias = str | Collection[str] | None


class Rule:
    """A rule for notices: which requests, at which moments, by which channels.

    Each rule that fits a request notifies, but each channel only once. That channel shows what its
    first fitting rule shows.

    Args:
        to: a channel, or several.
        on: the moments: `"asked"`, `"reminder"`, `"escalation"`, `"expired"`. By default all.
        kind: only requests of this kind, or of these kinds: `"approval"`, `"interrupt"`,
            `"doubt"`, `"halt"`.
        tool: only requests about this tool, or about these tools.
        agent: only requests of agents with a definition of this name, or of these names.
        audience: only escalations to this audience, or to these; no other notices.
        within: only requests that expire within this time after they are asked: seconds or a
            timedelta.
        show: the arguments that are sent outside. By default none. True = all; or some names;
            or a function that takes the `Request` and returns what is sent instead.

    Raises:
        UsageError: if an argument is wrong.

    """

    def __init__(
        self,
        to: Channel | Sequence[Channel],
        *,
        on: What | Collection[What] = WHAT,
        kind: Names = None,
        tool: Names = None,
        agent: Names = None,
        audience: Names = None,
        within: Seconds | None = None,
        show: Show = False,
    ) -> None:
        given = [to] if isinstance(to, Channel) else to
        if not isinstance(given, Sequence) or not given:
            raise UsageError(f"Rule(to) takes a channel, or a list of them, got {shown(to)}")
        for each in given:
            if not isinstance(each, Channel):
                raise UsageError(f"Rule(to) takes channels such as Slack(...), got {shown(each)}")
        self.channels: tuple[Channel, ...] = tuple(given)
        self.on: frozenset[str] = _names(on, "on") or frozenset()
        unknown = sorted(self.on - set(get_args(What)))
        if unknown or not self.on:
            known = ", ".join(map(repr, WHAT))
            raise UsageError(f"Rule(on=...) takes some of {known}, got {shown(on)}")
        self._kinds = _names(kind, "kind")
        self._tools = _names(tool, "tool")
        self._agents = _names(agent, "agent")
        self._audiences = _names(audience, "audience")
        self._within = None if within is None else checked_span(within, what="Rule(within=...)")
        if not isinstance(show, bool) and not callable(show):
            _names(show, "show")
        elif callable(show):
            checked_callable(show, what="Rule(show=...)", takes="of a Request")
        self.show: Show = (show,) if isinstance(show, str) else show

    def fits(self, request: Request, agent: str, what: What, audience: str) -> bool:
        """Return whether the rule notifies of this.

        Args:
            request: the request.
            agent: the name of the agent's definition.
            what: what happened.
            audience: the audience of an escalation; else empty.

        """
        waits = None if request.expires_at is None else request.expires_at - request.created_at
        return (
            what in self.on
            and _has(self._kinds, request.kind)
            and _has(self._tools, request.tool_name)
            and _has(self._agents, agent)
            and _has(self._audiences, audience)
            and (
                self._within is None
                or (waits is not None and waits.total_seconds() <= self._within)
            )
        )


def _has(names: frozenset[str] | None, name: str) -> bool:
    return names is None or name in names


def _names(given: object, what: str) -> frozenset[str] | None:
    if given is None:
        return None
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, Collection) or not all(isinstance(each, str) for each in found):
        raise UsageError(f"Rule({what}=...) takes a name, or several, got {shown(given)}")
    return frozenset(found)
