"""`Trust`: the people and the rules of a runtime, and the current trust of its whole store."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from understudy.approvals import Caller, Voter
from understudy.errors import JournalFailed, PeopleUnavailable, StoreDamaged, UsageError
from understudy.state.trust_facts import FactContent, data_of
from understudy.state.trust_log import TrustFact, TrustLog
from understudy.trust.delegations import with_delegations
from understudy.trust.fold import TrustState, apply_fact
from understudy.trust.freezes import Stops
from understudy.trust.people import People
from understudy.trust.registration import (
    check_none_needed,
    registration,
    to_register,
    to_retire,
)
from understudy.trust.required import remedy_for, why_not_enough
from understudy.trust.rules import Rules

Guard: TypeAlias = Callable[[str, str, Any, Caller | None], Awaitable[None]]
"""A function of a verb, its subject in words, its arguments, and the person who wants it. It
returns if the act may be done now."""


class Trust:
    """The people and the rules of a runtime. All of its runs share it, so a change holds at once.

    Args:
        people: the persons who may vote; None if the application names nobody.
        rules: the rules for the calls of all agents; None without rules.

    """

    def __init__(self, people: People | None = None, rules: Rules | None = None) -> None:
        self.people = people
        self._rules = rules
        self.provided: frozenset[str] = frozenset({"freeze"})
        """The features of this host, besides rules, that a store may require."""
        self.store: TrustLog | None = None
        """The store of the runtime, whose log it follows once the log is needed."""
        self.log: TrustLog | None = None
        """The log of the store; None if this runtime does not use it."""
        self.state: TrustState = TrustState()
        """The state by all facts that were read."""
        self.held: str | None = None
        """The reason why no call may start at this host now, so that it gives up its agents; None
        if calls may start."""
        self.stops: Stops | None = None
        """Everything that may not run here now, because of `held` or of freezes; None if everything
        may."""
        self.stamp: object | None = None if rules is None else object()
        """An object that changes with everything that is judged before a body is entered; None if
        nothing is judged."""
        self._pending: Rules | None = None
        """The rules that are being registered, and replace `rules` then."""
        self.lock: threading.Lock = threading.Lock()
        """The lock that is held while `stamp` changes, and while a thread enters a body."""
        self.guard: Guard | None = None
        """The guard that is asked before acts that `Runtime(protect=)` may protect; None without
        one."""
        self.on_change: Callable[[], None] | None = None
        """A function that is called on the loop after facts were read."""

    @property
    def rules(self) -> Rules | None:
        """The rules for the calls of all agents."""
        return self._rules

    @rules.setter
    def rules(self, rules: Rules | None) -> None:
        # From any thread.
        with self.lock:
            self._rules = rules
            self._judge_anew()

    @property
    def provides(self) -> frozenset[str]:
        """The features of this host that a store may require."""
        rules = self._pending or self._rules
        return self.provided if rules is None else self.provided | {"rules"}

    def check_required(self, rules: Rules | None) -> None:
        """Refuse a host that lacks what the store requires.

        Args:
            rules: the rules that it has, or is to have.

        Raises:
            UsageError: if it lacks a feature; the error has the remedy.

        """
        provides = self.provided if rules is None else self.provided | {"rules"}
        why = why_not_enough(self.state.required, provides)
        if why is not None:
            remedy = remedy_for(self.state.required, provides)
            raise UsageError(f"this runtime may not run on its store: {why}; {remedy}")

    def follow(self, log: TrustLog) -> None:
        """Judge by the log of a store from now on. Its facts are not read yet: see `look`."""
        if log is self.log:
            return
        log.follow_trust()
        with self.lock:
            self.log = log
            self._judge_anew()

    async def put_rules(
        self,
        rules: Rules | None,
        log: TrustLog,
        *,
        at: datetime,
        host: str,
        opening: bool = False,
    ) -> None:
        """Replace the rules of this host with these rules; register them if they are new.

        Args:
            rules: the rules, with or without a version.
            log: the log of the store.
            at: the time of now.
            host: the name of this host.
            opening: whether the host is opening: then it may have older rules, and starts no calls.

        Raises:
            UsageError: if this host must not have these rules.

        """
        has_version = rules is not None and rules.version is not None
        if self.log is None and (has_version or log.trust_seen):
            self.follow(log)
        if rules is None or not has_version:
            await self.look()
            check_none_needed(rules, self.state)
            self.check_required(rules)
            self.rules = rules
            return
        if opening:
            await self.look()
            self.check_required(rules)
        said = registration(rules, host)
        # Race: another look at the log may bring the fact that is added here first. No call may be
        # held because of that (test_a_host_that_raises_the_version_of_its_rules_holds_no_call).
        self._pending = rules
        try:
            decide = partial(to_register, said, at=at, opening=opening)
            await self.add(decide, at=at)
        except BaseException:
            with self.lock:
                self._pending = None
                self._judge_anew()
            raise
        with self.lock:
            self._pending, self._rules = None, rules
            self._judge_anew()
        if self.on_change is not None:
            self.on_change()

    async def voter(self, caller: Caller, now: datetime) -> Voter:
        """The caller as a voter, with the roles delegated by other persons. It never raises.

        Args:
            caller: the person who decides.
            now: the time of the decision.

        """
        assert self.people is not None, "the caller has looked"
        voter = await self.people.voter(caller)
        if not voter.person or voter.kind != "person":
            return voter
        if self.is_behind:
            try:
                await self.look()
            except JournalFailed as error:
                return replace(voter, why_unknown=f"the store does not answer: {error.message}")
        return await with_delegations(self.people, self.state.delegations.values(), voter, now)

    async def known_voter(self, caller: Caller, now: datetime, about: str) -> Voter:
        """The caller as `voter`, for somebody who can call again.

        Args:
            caller: the person who decides.
            now: the time of the decision.
            about: what is decided, for the errors.

        Raises:
            UsageError: if no people are known.
            PeopleUnavailable: if nobody can say now who the caller is.

        """
        if self.people is None:
            raise UsageError(f"{about}: no people are known: give Runtime(people=...)")
        voter = await self.voter(caller, now)
        if voter.why_unknown:
            raise PeopleUnavailable(f"{about}: {voter.why_unknown}. Try again later")
        return voter

    async def voters(self, callers: Iterable[Caller], now: datetime) -> dict[Caller, Voter]:
        """Each caller as a voter, as `voter` does."""
        return {each: await self.voter(each, now) for each in dict.fromkeys(callers)}

    async def retire_rules(
        self, *, at: datetime, by: str | None, version: int | None = None
    ) -> bool:
        """Retire the rules of the store. Returns whether rules held.

        Args:
            at: the time of the decision.
            by: the person who decides it.
            version: the version of the meant rules; None = the newest.

        Raises:
            UsageError: if other rules hold.

        """
        return await self.add(partial(to_retire, version=version), at=at, by=by) is not None

    @property
    def is_behind(self) -> bool:
        """Whether the log has facts that were not read."""
        return self.log is not None and self.log.trust_seen > self.state.number

    async def look(self) -> None:
        """Read the facts that are new, and judge by them from then on.

        Raises:
            StoreUnavailable, StoreBroken: if the store cannot be read.
            StoreDamaged: if the log has fewer facts than before.

        """
        log = self.log
        if log is None:
            return
        seen = log.trust_seen
        facts = await log.trust_after(self.state.number)
        self.note(*facts)
        if self.state.number < seen:
            raise StoreDamaged(
                what="the log of trust",
                cause=f"it ends at fact {self.state.number}, and had {seen} before: an older copy "
                "of the store may have been restored. Start this host anew",
            )

    async def add(
        self,
        decide: Callable[[TrustState], FactContent | None],
        *,
        at: datetime,
        by: str | None = None,
        add: Callable[[TrustFact], Awaitable[bool]] | None = None,
    ) -> TrustFact | None:
        """Add a fact that a function decides by the current state. Other hosts may add at the same
        time.

        Args:
            decide: a function of the state that returns the fact to add, or None. It is called
                again if another host has added a fact meanwhile. Its errors are raised.
            at: the time of the decision.
            by: the person who decides it.
            add: the function that adds the fact; by default `TrustLog.add_trust`.

        Raises:
            UsageError: if the store keeps no log of trust, or there is no store.

        """
        log = self.store or self.log
        if log is None:
            raise UsageError("this runtime does not follow the log of trust of its store")
        self.follow(log)
        while True:
            await self.look()
            content = decide(self.state)
            if content is None:
                return None
            fact = TrustFact(
                number=self.state.number + 1,
                at=at,
                by=by,
                kind=content.KIND,
                data=data_of(content),
            )
            # Race: other hosts add facts too. Each number is taken once
            # (test_of_two_hosts_that_add_a_fact_at_once_the_second_decides_by_the_first).
            if await (log.add_trust(fact) if add is None else add(fact)):
                self.note(fact)
                return fact

    def note(self, *facts: TrustFact) -> None:
        """Judge by these facts from now on, in order, as far as they are new."""
        state = self.state
        for fact in facts:
            # A concurrent look may have brought the fact already.
            if fact.number == state.number + 1:
                state = apply_fact(state, fact)
        if state is not self.state:
            # Race: a thread is about to enter a body. Once this has had the lock, no thread enters
            # a body that was judged before
            # (test_a_body_that_waits_for_a_thread_is_not_entered_after_the_log_says_no).
            with self.lock:
                self.state = state
                self._judge_anew()
            if self.on_change is not None:
                self.on_change()

    def hear(self, log: TrustLog) -> None:
        """Let each body be judged anew from now on, if the log has unread facts.

        It is called in any thread, and is for the time between learning of a fact and reading it.
        """
        with self.lock:
            if log.trust_seen > self.state.number:
                if self.log is None:
                    log.follow_trust()
                    self.log = log
                self._judge_anew()

    def _judge_anew(self) -> None:
        """Change the stamp, because the judged state has changed. The caller holds the lock."""
        self.held = self._why_held()
        freezes = tuple(self.state.freezes.values())
        self.stops = Stops(self.held, freezes) if freezes or self.held is not None else None
        self.stamp = None if self._rules is None and self.log is None else object()

    def _why_held(self) -> str | None:
        state, rules = self.state, self._pending or self._rules
        if self.log is None:
            return None
        if state.unknown:
            kinds = ", ".join(map(repr, state.unknown))
            return f"a later version of understudy has decided what this one cannot read ({kinds})"
        lacks = why_not_enough(state.required, self.provides) if state.required else None
        if lacks is not None:
            return lacks
        newest = state.rules
        if newest is None:
            return None
        version = None if rules is None else rules.version
        if version is None:
            here = "none" if rules is None else "none with a version"
            return f"rules version {newest.version} in the store, {here} here"
        if version < newest.version:
            return f"rules version {version} here, {newest.version} in the store"
        return None


NO_TRUST = Trust()
"""The trust outside of a runtime: nobody votes there, and only gates ask."""
