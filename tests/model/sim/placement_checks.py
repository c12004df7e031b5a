"""What a new ledger gets: a warning if its quorum is weak (rule 8), racks as good as they can be (rule 36).

The judge knows nothing of the search that it judges: it looks for a seating without a flaw by trying them one by one.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import product

from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo, PlacementPolicy
from daybook.core.quorum import Quorum, write_set
from daybook.core.writer import policy as writer_policy
from tests.model.sim.audit_checks import rack_deficit
from tests.model.sim.checkers import Checkers

Registered = Mapping[BookieId, BookieInfo]


def check_new_ledger(
    checkers: Checkers,
    placement: PlacementPolicy,
    metadata: LedgerMetadata,
    registered: Registered,
) -> None:
    """The ledger is about to be created on bookies that were chosen from `registered`."""
    quorum, ensemble = metadata.quorum, metadata.last_fragment.bookies
    is_weak = 2 * quorum.ack_quorum < quorum.write_quorum + 1
    if is_weak is (writer_policy.quorum_warning(quorum) is None):
        checkers.fail("a weak ack quorum is warned about", f"{quorum}: weak is {is_weak} (rule 8)")
    racks = [registered[name].rack for name in ensemble]
    misses = rack_deficit(metadata, ensemble, registered)
    if misses and not placement.problems(quorum, ensemble, registered):
        checkers.fail("what is placed badly is reported", f"nothing is said of {racks} (rule 36)")
    writable = {name: info for name, info in registered.items() if info.writable}
    if misses and has_flawless_seating(quorum, writable):
        checkers.fail("a new ensemble is placed as well as can be", f"{racks}, of {registered} (rule 36)")


def has_flawless_seating(quorum: Quorum, bookies: Registered) -> bool:
    """Whether some ensemble of `bookies` has no write set within one rack."""
    sets = {frozenset(write_set(quorum, residue)) for residue in range(quorum.ensemble_size)}
    room = Counter(info.rack for info in bookies.values())
    return quorum.write_quorum < 2 or any(
        Counter(seats) <= room and all(len({seats[at] for at in members}) > 1 for members in sets)
        for seats in product(sorted(room), repeat=quorum.ensemble_size)
    )
