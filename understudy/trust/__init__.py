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
from understudy.trust.people import People, Person
from understudy.trust.rules import CallView, Rule, Rules, Verdict, allow, ask, deny
from understudy.trust.trial import Trial, TriedCall

__all__ = [
    "Approval",
    "Assurance",
    "CallView",
    "Caller",
    "Grant",
    "GrantOffer",
    "GrantScope",
    "GrantTerms",
    "Login",
    "People",
    "Person",
    "Rule",
    "Rules",
    "Tally",
    "Trial",
    "TriedCall",
    "Verdict",
    "Vote",
    "allow",
    "approval",
    "ask",
    "deny",
    "grant",
    "offer",
    "tally",
]
