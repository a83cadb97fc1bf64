"""The contract of a `Backend`: what every database under a store does."""

from __future__ import annotations

from understudy.testing.contracts.backends.appends import Appends
from understudy.testing.contracts.backends.checkpoints import Checkpoints
from understudy.testing.contracts.backends.claims import Claims
from understudy.testing.contracts.backends.commits import Commits
from understudy.testing.contracts.backends.compaction import Compaction
from understudy.testing.contracts.backends.deletion import Deletion
from understudy.testing.contracts.backends.dues import Dues
from understudy.testing.contracts.backends.files import Files
from understudy.testing.contracts.backends.hosts import Hosts
from understudy.testing.contracts.backends.keys import Keys
from understudy.testing.contracts.backends.mixes import Mixes
from understudy.testing.contracts.backends.reads import Reads
from understudy.testing.contracts.backends.releases import Releases
from understudy.testing.contracts.backends.spending import Spendings
from understudy.testing.contracts.backends.transactions import Transactions
from understudy.testing.contracts.backends.trust import TrustFacts


class BackendContract(
    Mixes,
    Spendings,
    TrustFacts,
    Keys,
    Checkpoints,
    Files,
    Dues,
    Reads,
    Deletion,
    Compaction,
    Hosts,
    Releases,
    Commits,
    Transactions,
    Appends,
    Claims,
):
    """What every `Backend` does, as tests in its own words. Override `new_backend`.

    Each test begins with an empty database. The optional parts `"checkpoints"`, `"files"`,
    `"keys"`, `"messages"`, `"spending"` and `"trust"` are tested if `Backend.keeps` names them.
    `StoreContract` over `DatabaseStore(...)` tests the other parts. A `SharedBackend` is also
    tested with several hosts.
    """
