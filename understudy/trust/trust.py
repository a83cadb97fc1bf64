"""`Trust`: the people and the rules of a runtime, and what holds for its whole store, as of now."""

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
"""Gets a verb, what it is about in words, its arguments, and who wants it. It returns where that
may be done now."""


class Trust:
    """The people and the rules of a runtime. All of its runs share it, so a change holds at once.

    Args:
        people: the persons who may vote; None where the application names nobody.
        rules: for the calls of all agents; None without.

    """

    def __init__(self, people: People | None = None, rules: Rules | None = None) -> None:
        self.people = people
        self._rules = rules
        self.provided: frozenset[str] = frozenset({"freeze"})
        """What this host has besides rules, of what a store may require."""
        self.store: TrustLog | None = None
        """The store of the runtime, whose log it follows once somebody needs it."""
        self.log: TrustLog | None = None
        """The log of the store; None where this runtime uses nothing of it."""
        self.state: TrustState = TrustState()
        """What holds by all facts that were read."""
        self.held: str | None = None
        """Why no call may start at this host now, so that it gives up its agents; None where calls
        may."""
        self.stops: Stops | None = None
        """What may not run here now: because of `held`, or because it is frozen. None where
        everything may."""
        self.stamp: object | None = None if rules is None else object()
        """Another one after each change of what is judged before a body is entered; None where
        nothing is."""
        self._pending: Rules | None = None
        """Rules that are being registered, and take the place of `rules` then."""
        self.lock: threading.Lock = threading.Lock()
        """Held while what is judged changes, and while a thread enters a body: see `stamp`."""
        self.guard: Guard | None = None
        """Asked before what `Runtime(protect=)` may protect; None where nothing is protected."""
        self.on_change: Callable[[], None] | None = None
        """Called on the loop after facts were read."""

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
        """What this host has, of what a store may require."""
        rules = self._pending or self._rules
        return self.provided if rules is None else self.provided | {"rules"}

    def check_required(self, rules: Rules | None) -> None:
        """Refuse a host that lacks what the store requires.

        Args:
            rules: that it has, or is to have.

        Raises:
            UsageError: then. It says how to give it that.

        """
        provides = self.provided if rules is None else self.provided | {"rules"}
        why = why_not_enough(self.state.required, provides)
        if why is not None:
            remedy = remedy_for(self.state.required, provides)
            raise UsageError(f"this runtime may not run on its store: {why}; {remedy}")

    def follow(self, log: TrustLog) -> None:
        """Judge by the log of a store from now on. What is there is not read yet: see `look`."""
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
            rules: with a version, or without.
            log: of the store.
            at: now.
            host: the name of this host.
            opening: whether it opens: then it may have older rules, and starts no calls.

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
        # Race: this against another look at the log, which may bring what is added here first: no
        # call is to be held because of it
        # (test_a_host_that_raises_the_version_of_its_rules_holds_no_call).
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
        """The caller as a voter, with the roles that others have given them. It never raises.

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
        """As `voter`, for each caller."""
        return {each: await self.voter(each, now) for each in dict.fromkeys(callers)}

    async def retire_rules(
        self, *, at: datetime, by: str | None, version: int | None = None
    ) -> bool:
        """Have no rules hold for the store any more. Returns whether some did.

        Args:
            at: when that is decided.
            by: the person who decides it.
            version: of the rules that are meant; None for the newest.

        Raises:
            UsageError: if other rules hold.

        """
        return await self.add(partial(to_retire, version=version), at=at, by=by) is not None

    @property
    def is_behind(self) -> bool:
        """Whether there are facts that were not read."""
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
        """Add what a function decides by what holds now. Others may add at the same time.

        Args:
            decide: gets what holds, and returns the fact to add, or None for none. It is called
                again where another host has added a fact meanwhile. What it raises is raised.
            at: when that is decided.
            by: the person who decides it.
            add: adds it; by default `TrustLog.add_trust`.

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
            # Race: this against all other hosts. The number is taken once
            # (test_of_two_hosts_that_add_a_fact_at_once_the_second_decides_by_the_first).
            if await (log.add_trust(fact) if add is None else add(fact)):
                self.note(fact)
                return fact

    def note(self, *facts: TrustFact) -> None:
        """Judge by these facts from now on, in order, as far as they are new."""
        state = self.state
        for fact in facts:
            # Another look, which was under way at the same time, may have brought it already.
            if fact.number == state.number + 1:
                state = apply_fact(state, fact)
        if state is not self.state:
            # Race: this on the loop against a thread that is about to enter a body. Once this has
            # had the lock, no thread enters one that was judged before
            # (test_a_body_that_waits_for_a_thread_is_not_entered_after_the_log_says_no).
            with self.lock:
                self.state = state
                self._judge_anew()
            if self.on_change is not None:
                self.on_change()

    def hear(self, log: TrustLog) -> None:
        """Have each body judged anew from now on, if the log has facts that were not read.

        Called in any thread. For the time between the moment at which this host learns of a fact
        and the moment at which it has read it.
        """
        with self.lock:
            if log.trust_seen > self.state.number:
                if self.log is None:
                    log.follow_trust()
                    self.log = log
                self._judge_anew()

    def _judge_anew(self) -> None:
        """What is judged by has changed. The caller holds the lock."""
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
"""Of what runs outside of a runtime: nobody votes there, and gates alone ask."""
