"""What a new ledger gets: a warning if its quorum is weak (rule 8), racks as good as they can be (rule 36).

The judge knows nothing of the search that it judges: it looks for a seating without a flaw by trying them one by one.
"""

from collections.abc import Mapping

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
    sets = [set(write_set(quorum, residue)) for residue in range(quorum.ensemble_size)]
    left: dict[str, int] = {}
    for info in bookies.values():
        left[info.rack] = left.get(info.rack, 0) + 1
    seats: list[str] = []

    def fits() -> bool:
        filled = range(len(seats))
        return all(len({seats[at] for at in members}) > 1 for members in sets if members <= set(filled))

    def fill() -> bool:
        if len(seats) == quorum.ensemble_size:
            return True
        for rack in sorted(left):
            if left[rack]:
                left[rack] -= 1
                seats.append(rack)
                if fits() and fill():
                    return True
                seats.pop()
                left[rack] += 1
        return False

    return quorum.write_quorum < 2 or fill()
