"""What must be true in the end, when nothing goes wrong any more: all bookies are there, no orphans, and placement as good as it can be.

Each says what is left in words, so that a run can wait for it and say what it waited for in vain.
"""

from collections.abc import Collection, Mapping

from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from tests.model.sim.audit_checks import rack_deficit
from tests.model.sim.bookie_model import SimBookie
from tests.model.sim.checkers import Checkers
from tests.model.sim.metadata_model import MetadataStore


def unregistered(bookies: Mapping[BookieId, SimBookie], store: MetadataStore) -> list[str]:
    """The bookies that may yet be unreachable, without those that are stopped for good; in words.

    A process that starts after a crash registers only when the session of its predecessor has ended, and a client trusts
    the registered process alone (rule 57).
    """
    found = []
    for name, bookie in bookies.items():
        info, session = store.registered.get(name, (None, None))
        if bookie.gone:
            continue
        if not bookie.serving or info is None or session is not bookie.session or not info.writable:
            found.append(f"{name} has not registered as writable")
    return found


def orphans(checkers: Checkers, gone: Collection[BookieId] = ()) -> list[str]:
    """What bookies hold of deleted ledgers, and replicas that metadata no longer places on them; in words.

    `gone` bookies were decommissioned: nobody starts on their disks any more, so nobody collects there.
    """
    found = []
    for bookie, disk in checkers.bookies.items():
        if bookie in gone:
            continue
        for ledger_id, entries in disk.everything_held().items():
            oracle = checkers.oracles.get(ledger_id)
            if oracle is None:
                continue  # a bookie's own mark, while it writes its limbo down
            if oracle.deleted:
                found.append(f"{bookie} still has the deleted ledger {ledger_id}")
            elif oracle.end is not None:
                left = sorted(set(entries) - set(checkers.owed_by(oracle, bookie)))
                if left:
                    found.append(f"{bookie} still has {left} of ledger {ledger_id}, which it does not owe")
    return found


def misplaced(checkers: Checkers, registered: Mapping[BookieId, BookieInfo]) -> list[str]:
    """The fragments of which one replica could be moved to spread the others over more racks (rule 36)."""
    found = []
    for ledger_id, oracle in checkers.oracles.items():
        metadata = oracle.metadata
        if oracle.deleted or oracle.end is None or not metadata.bookies() <= registered.keys():
            continue
        for fragment in metadata.fragments:
            members = fragment.bookies
            now = rack_deficit(metadata, members, registered)
            others = registered.keys() - set(members) if now else ()
            moves = (
                [*members[:at], name, *members[at + 1 :]] for at in range(len(members)) for name in others
            )
            if any(rack_deficit(metadata, move, registered) < now for move in moves):
                found.append(f"ledger {ledger_id} could be placed better than on {members}")
    return found
