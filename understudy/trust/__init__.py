"""Who may decide what: persons with roles, and calls to which several of them must agree.

from understudy.trust import approval

agent = Agent(..., interrupt_on={"refund": {"approval": approval({"finance": 2})}})
with Runtime([agent], people={"ann": ["finance"], "bob": ["finance"]}) as runtime: ...
"""

from understudy.approvals import Approval, Assurance, Tally, Vote, approval, tally
from understudy.trust.people import Caller, People, Person

__all__ = [
    "Approval",
    "Assurance",
    "Caller",
    "People",
    "Person",
    "Tally",
    "Vote",
    "approval",
    "tally",
]
