"""The fault atlas: which disk may be lost now, so that every failure of a run is a bug and never bad luck."""

from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import write_set
from tests.model.sim.checkers import Checkers
from tests.model.sim.oracle import Oracle


def may_lose(checkers: Checkers, bookie: BookieId) -> bool:
    """Whether the disk of `bookie` may be lost: fewer than Qa of any entry's bookies are then lost for good.

    A bookie is lost for a ledger while it is in limbo, and for an entry when it had it and has it no more. So no
    run is given a task that cannot be done, and every failure is a bug. No oracle knows a ledger whose creation is under
    way, and it may name every bookie whose empty disk has not started yet. So where ledgers are created all the time, fewer
    than Qa bookies are in that state (`replaced_max`); none, where Qa is 1.
    """
    replaced = {name for name, found in checkers.bookies.items() if found.replaced} | {bookie}
    if len(replaced) > checkers.replaced_max:
        return False
    return all(
        _survives(checkers, oracle, metadata, bookie)
        for oracle in checkers.oracles.values()
        for metadata in (oracle.metadata, oracle.proposed)
        if metadata is not None and not oracle.deleted
    )


def _survives(checkers: Checkers, oracle: Oracle, metadata: LedgerMetadata, bookie: BookieId) -> bool:
    most = metadata.quorum.ack_quorum - 1
    if not metadata.is_closed and len(_unfit_to_be_named(checkers, oracle, metadata, bookie)) > most:
        return False
    for index, fragment in enumerate(metadata.fragments):
        names = fragment.bookies
        if bookie not in names:
            continue
        limbo = [name == bookie or checkers.bookies[name].is_in_limbo(metadata.ledger_id) for name in names]
        for residue in range(metadata.quorum.ensemble_size):
            if sum(limbo[position] for position in write_set(metadata.quorum, residue)) > most:
                return False
        end = metadata.fragment_end(index)
        for entry, holders in oracle.durable_ever.items():
            if entry < fragment.first_entry or (end is not None and entry > end):
                continue
            lost = [
                limbo[position] or _has_lost(checkers, metadata.ledger_id, entry, names[position], holders)
                for position in write_set(metadata.quorum, entry)
            ]
            if sum(lost) > most:
                return False
    return True


def _unfit_to_be_named(
    checkers: Checkers, oracle: Oracle, metadata: LedgerMetadata, bookie: BookieId
) -> set[BookieId]:
    """A writer may put any of them into the last ensemble, where nobody could then say how far it was written.

    One whose disk was just lost is in limbo as soon as it is named; one with damage keeps it whatever it is sent again.
    """
    first = metadata.last_fragment.first_entry
    recent = [(entry, holders) for entry, holders in oracle.durable_ever.items() if entry >= first]
    return {bookie} | {
        name
        for name, found in checkers.bookies.items()
        if found.replaced
        or found.is_in_limbo(metadata.ledger_id)
        or any(_has_lost(checkers, metadata.ledger_id, entry, name, holders) for entry, holders in recent)
    }


def _has_lost(
    checkers: Checkers, ledger_id: LedgerId, entry: EntryId, name: BookieId, holders: set[BookieId]
) -> bool:
    return name in holders and not checkers.bookies[name].holds_durably(ledger_id, entry)
