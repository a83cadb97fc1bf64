"""Many changes in any order, against a plain model."""

from __future__ import annotations

import random

from understudy.errors import Fenced, StoreConflict
from understudy.journal.backend import Backend
from understudy.journal.contracts import Owned
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    batch,
    claim,
    commit,
    loaded,
    stored,
    texts,
)
from understudy.testing.contracts.contract import cases, raised

ACTS = ("claim", "append", "stale", "gap", "compact", "delete", "rollback")


def mix(seed: int) -> list[tuple[str, str, int]]:
    """A list of changes, each with the action, the agent and the number of records."""
    drawn = random.Random(seed)  # noqa: S311
    return [
        (drawn.choice(ACTS), drawn.choice("abc"), drawn.randint(1, 4))
        for _ in range(drawn.randint(1, 40))
    ]


class Model:
    """The records of one agent, kept in a list."""

    def __init__(self) -> None:
        self.owned: Owned | None = None
        self.seq = 0
        self.kept: list[str] = []


def _change(backend: Backend, model: Model, act: str, agent_id: str, count: int) -> None:
    owned = model.owned
    if act == "claim" or owned is None:
        model.owned = claim(backend, agent_id)
        assert model.owned.last_seq == model.seq
        return
    names = [f"{model.seq + n + 1}" for n in range(count)]
    backend.begin()
    if act in ("append", "rollback"):
        backend.append(batch(owned, *names, first_seq=model.seq + 1))
    elif act == "stale":
        older = Owned(
            agent_id=agent_id, agent="", incarnation=1, epoch=owned.epoch - 1, last_seq=model.seq
        )
        with raised(Fenced):
            backend.append(batch(older, *names))
    elif act == "gap":
        with raised(StoreConflict):
            backend.append(batch(owned, *names, first_seq=model.seq + 1 + count))
    elif act == "compact":
        backend.compact(batch(owned, names[0], first_seq=model.seq + 1))
        model.kept, model.seq = names[:1], model.seq + 1
    else:
        assert backend.delete(agent_id)
        model.owned, model.kept, model.seq = None, [], 0
    if act == "rollback":
        backend.rollback()
        return
    backend.commit()
    if act == "append":
        model.kept, model.seq = model.kept + names, model.seq + count


class Mixes(BackendTests):
    """Many changes in any order, against a plain model."""

    @cases(**{f"mix{number}": number for number in range(30)})
    def test_any_mix_of_changes_leaves_what_a_list_would_hold(self, case: int) -> None:
        # J7, J16, J17
        backend = self.open()
        models = {agent_id: Model() for agent_id in "abc"}
        for agent_id in models:
            with commit(backend):
                backend.delete(agent_id)
        for act, agent_id, count in mix(case):
            _change(backend, models[agent_id], act, agent_id, count)
        for agent_id, model in models.items():
            if model.owned is None:
                assert backend.load(agent_id, 0) is None
                continue
            assert texts(backend, agent_id) == model.kept
            assert stored(backend, agent_id).last_seq == model.seq
            assert loaded(backend, agent_id).first_seq == model.seq - len(model.kept) + 1
