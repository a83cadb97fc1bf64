"""The right to decide: persons with roles, and calls to which several persons must agree.

from understudy.trust import Rules, approval, ask, deny

rules = Rules(ask("refund", approval({"finance": 2}, never=["requester"])), deny("drop_*"))
people = {"ann": ["finance"], "bob": ["finance"]}
with Runtime([agent], rules=rules, people=people) as runtime: ...
"""

from understudy._base.authors import Login
from understudy._base.grant_terms import (
    GrantOffer,
    GrantScope,
    GrantTerms,
    grant,
    offer,
)
from understudy.approvals import Approval, Assurance, Caller, Tally, Vote, approval, tally
from understudy.interrupts import Grant
from understudy.trust.budgets import (
    Budget,
    Measure,
    Window,
    calls,
    day,
    last,
    month,
    sum_of,
    tokens,
    usd,
    week,
)
from understudy.trust.freezes import EnteredCall, Freeze
from understudy.trust.people import People, Person
from understudy.trust.required import Requirement
from understudy.trust.rules import CallView, Rule, Rules, Verdict, allow, ask, deny
from understudy.trust.trial import Trial, TriedCall

__all__ = [
    "Approval",
    "Assurance",
    "Budget",
    "CallView",
    "Caller",
    "EnteredCall",
    "Freeze",
    "Grant",
    "GrantOffer",
    "GrantScope",
    "GrantTerms",
    "Login",
    "Measure",
    "People",
    "Person",
    "Requirement",
    "Rule",
    "Rules",
    "Tally",
    "Trial",
    "TriedCall",
    "Verdict",
    "Vote",
    "Window",
    "allow",
    "approval",
    "ask",
    "calls",
    "day",
    "deny",
    "grant",
    "last",
    "month",
    "offer",
    "sum_of",
    "tally",
    "tokens",
    "usd",
    "week",
]
