"""Rules, tried on the calls that a store has the records of."""

from __future__ import annotations

from datetime import datetime

from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.journal import IndexStatus, StoredAgent, StoreReads
from understudy.trust.rules import Rules
from understudy.trust.trial import Known, Trial

PAGE = 500
"""The most records of an agent that are in memory at a time, besides its state."""


async def try_rules(
    store: StoreReads, rules: Rules, since: datetime | None, known: Known | None
) -> Trial:
    """Try rules on the calls of all agents.

    Args:
        store: that has their records.
        rules: that are tried.
        since: calls that ended before are left out.
        known: as of `Trial`.

    """
    trial = Trial(rules, since, known)
    async for stored in store.agents():
        if since is not None and _has_rested(stored, since):
            continue
        try:
            await _try_agent(store, stored, trial)
        except (StoreDamaged, SchemaVersionError):
            trial.untried["agents whose records cannot be read"] += 1
    return trial


def _has_rested(stored: StoredAgent, since: datetime) -> bool:
    """Whether nothing of the agent has gone on since it was read: a call changes its status."""
    at_rest = stored.index_status is IndexStatus.REST and stored.damage is None
    return at_rest and stored.status_at is not None and stored.status_at < since


async def _try_agent(store: StoreReads, stored: StoredAgent, trial: Trial) -> None:
    if stored.damage is not None:
        raise stored.damage
    tried = trial.of_agent(stored.agent_id, stored.agent)
    after = 0
    while (loaded := await store.load_part(stored.agent_id, after, PAGE)) is not None:
        with loaded.as_damage():
            for record in loaded.records:
                tried.add(record)
        after = loaded.first_seq + len(loaded.records) - 1
        if len(loaded.records) < PAGE:
            break
    else:
        return  # it is deleted meanwhile
    with loaded.as_damage():
        tried.end()
