"""What votes come to: `understudy.trust.tally`."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy import UsageError
from understudy.trust import Vote, approval, tally

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def vote(person: str, *roles: str, type: Any = "approve") -> Vote:
    return Vote(person=person, name=person, login=person, roles=roles, type=type, at=NOW)


def test_two_distinct_persons_of_a_role_are_needed() -> None:
    """V1."""
    asked = approval({"finance": 2})
    assert tally(asked, []).text == "2 more of finance"
    assert tally(asked, [vote("ann", "finance")]).text == "1 more of finance"
    again = [vote("ann", "finance"), vote("ann", "finance")]
    assert tally(asked, again).result is None, "one person is one vote"
    assert tally(asked, [vote("ann", "finance"), vote("bob", "finance")]).result == "approve"


def test_a_person_with_two_roles_stands_for_one_of_them() -> None:
    """V1."""
    asked = approval({"finance": 1, "legal": 1})
    both = vote("ann", "finance", "legal")
    assert tally(asked, [both]).result is None
    assert tally(asked, [both, vote("bob", "finance")]).result == "approve", "ann gives way"
    assert tally(asked, [vote("bob", "finance"), both]).result == "approve"


def test_each_of_several_ways_is_enough() -> None:
    """V1."""
    asked = approval(any_of=[{"finance": 2}, {"ceo": 1}])
    assert tally(asked, [vote("cy", "ceo")]).result == "approve"
    assert tally(asked, [vote("ann", "finance")]).result is None
    assert asked.text == "2 of finance, or 1 of ceo"


def test_a_rejection_counts_of_who_might_approve_alone() -> None:
    """V1."""
    asked = approval({"finance": 2})
    assert tally(asked, [vote("eve", "support", type="reject")]).result is None
    assert tally(asked, [vote("ann", "finance", type="reject")]).result == "reject"
    two = approval({"finance": 2}, deny=2)
    assert tally(two, [vote("ann", "finance", type="reject")]).result is None


def test_the_last_vote_of_a_person_counts() -> None:
    """V1."""
    asked = approval({"finance": 1}, deny=2)
    changed = [vote("ann", "finance", type="reject"), vote("ann", "finance")]
    assert tally(asked, changed).result == "approve"


ROLES = ("a", "b", "c")
PEOPLE = st.lists(st.sets(st.sampled_from(ROLES)), max_size=5)
WAYS = st.dictionaries(st.sampled_from(ROLES), st.integers(1, 2), min_size=1)


@given(people=PEOPLE, way=WAYS)
def test_it_is_enough_where_persons_can_be_given_to_the_roles_and_not_otherwise(
    people: list[set[str]], way: dict[str, int]
) -> None:
    """V1: compared with all assignments."""
    votes = [vote(str(number), *sorted(roles)) for number, roles in enumerate(people)]
    places = [role for role, number in way.items() for _ in range(number)]
    can = any(
        all(role in people[person] for role, person in zip(places, chosen, strict=True))
        for chosen in permutations(range(len(people)), len(places))
    )
    assert (tally(approval(way), votes).result == "approve") is can


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "names nobody"),
        ({"by": {}}, "takes roles with numbers of persons"),
        ({"by": "finance"}, "takes roles with numbers of persons"),
        ({"by": {"finance": 0}}, "must be at least 1"),
        ({"by": {"finance": True}}, "must be at least 1"),
        ({"by": {"": 1}}, "a role"),
        ({"by": {"finance": 21}}, "more than 20 persons"),
        ({"by": {"finance": 1}, "any_of": [{"ceo": 1}]}, "not both"),
        ({"by": {"finance": 1}, "deny": 0}, "from 1 to 20"),
        ({"by": {"finance": 1}, "never": "requester"}, r'must be \["requester"\]'),
        ({"by": {"finance": 1}, "never": ["ann"]}, r'must be \["requester"\]'),
    ],
)
def test_an_approval_that_asks_nobody_is_refused(options: dict[str, Any], told: str) -> None:
    """V1."""
    with pytest.raises(UsageError, match=told):
        approval(**options)
