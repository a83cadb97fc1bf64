"""The contract of a `Store`: its methods as a runtime uses them, and whole agents on it."""

from __future__ import annotations

from understudy.testing.contracts.stores.journals import Journals
from understudy.testing.contracts.stores.kept_besides import KeptBesides
from understudy.testing.contracts.stores.lives import Lives
from understudy.testing.contracts.stores.lookups import Lookups


class StoreContract(Lives, KeptBesides, Lookups, Journals):
    """The rules for every `Store`, for its methods and for whole agents. Override `new_store`.

    Each test begins with an empty store. The optional parts that `Store.keeps` names are tested.
    """
