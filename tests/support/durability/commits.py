"""What stands around each transaction of a database, however many round trips it takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.support.durability.broken_hosts import replaced
from understudy.journal.contracts import Batch, Refusal

Answers = list[Refusal | None]
Around = Callable[[Sequence[Batch], Callable[[], Answers]], Answers]
"""Gets the batches of a transaction, none for one of claims alone, and what commits them."""


def around_commits(owner: type[Any], around: Around) -> None:
    """Have this called in the place of each commit of a type of backend, from now on.

    Args:
        owner: the type.
        around: this. It calls what it is given, and returns what that answers.

    """
    inner_begin, inner_append = owner.begin, owner.append_all
    inner_commit, inner_all = owner.commit, owner.commit_all
    appended: dict[int, tuple[list[Batch], Answers]] = {}
    """Of transactions that are open, by the backend's identity."""
    in_one: set[int] = set()
    """The backends that commit batches by one call, which may take its steps by itself."""

    @functools.wraps(inner_begin)
    def begin(backend: Any) -> None:
        appended[id(backend)] = ([], [])
        inner_begin(backend)

    @functools.wraps(inner_append)
    def append_all(backend: Any, batches: Sequence[Batch]) -> Answers:
        answers: Answers = inner_append(backend, batches)
        if id(backend) in appended:
            there = appended[id(backend)]
            there[0].extend(batches)
            there[1].extend(answers)
        return answers

    @functools.wraps(inner_commit)
    def commit(backend: Any) -> None:
        batches, answers = appended.pop(id(backend), ([], []))

        def committed() -> Answers:
            inner_commit(backend)
            return answers

        if id(backend) in in_one:
            committed()
        else:
            around(batches, committed)

    @functools.wraps(inner_all)
    def commit_all(backend: Any, batches: Sequence[Batch]) -> Answers:
        in_one.add(id(backend))
        try:
            return around(batches, partial(inner_all, backend, batches))
        finally:
            in_one.discard(id(backend))

    for made in (begin, append_all, commit, commit_all):
        replaced(owner, made.__name__, made)
