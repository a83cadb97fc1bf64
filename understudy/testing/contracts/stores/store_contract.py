"""The contract of a `Store`: what a runtime asks of it, and whole agents on it."""

from __future__ import annotations

from understudy.testing.contracts.stores.journals import Journals
from understudy.testing.contracts.stores.kept_besides import KeptBesides
from understudy.testing.contracts.stores.lives import Lives
from understudy.testing.contracts.stores.lookups import Lookups


class StoreContract(Lives, KeptBesides, Lookups, Journals):
    """What every `Store` does, in its own words and by whole agents. Override `new_store`.

    Each test begins with an empty store. Of what a store may keep besides records, that which
    `Store.keeps` names is tested.
    """
