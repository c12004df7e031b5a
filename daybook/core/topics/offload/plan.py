"""Which ledgers a job copies, which files nobody names, and whose replicas can go (rule 70, rule 73)."""

from collections.abc import Collection
from dataclasses import dataclass

from daybook.core.ids import LedgerId
from daybook.core.topics.ledger_list import LedgerList, ListedLedger
from daybook.core.topics.offload.record import Offload, name_of


@dataclass(frozen=True, slots=True)
class OffloadLimits:
    """What stays on bookies alone. The defaults offload every closed ledger."""

    keep_bytes: int = 0
    """The newest ledgers of a topic up to this size, as Pulsar's threshold."""
    keep_ms: int = 0
    """Ledgers that were closed within this time."""
    with_restored: bool = False
    """Whether ledgers that somebody has restored go, too."""


def plan_offload(ledger_list: LedgerList, limits: OffloadLimits, unix_ms: int) -> list[ListedLedger]:
    """The ledgers that a job copies now, the oldest first: closed, with entries, without a file, and never restored."""
    candidates = [
        ledger
        for ledger in ledger_list.ledgers
        if ledger.offload is None and (ledger.restored is None or limits.with_restored)
    ]
    rest_bytes = sum(ledger.size_bytes for ledger in candidates)
    chosen = []
    for ledger in candidates:
        if ledger.closed_at_ms is None or not ledger.entries:
            continue
        is_old = unix_ms - ledger.closed_at_ms >= limits.keep_ms
        if is_old and (rest_bytes > limits.keep_bytes or not limits.keep_bytes):
            rest_bytes -= ledger.size_bytes
            chosen.append(ledger)
    return chosen


def replicas_due(ledger_list: LedgerList, unix_ms: int) -> dict[LedgerId, Offload]:
    """The ledgers whose lag is over, with their files: the owner gives their replicas up once it has read the files."""
    return {
        ledger.ledger_id: offload
        for ledger in ledger_list.ledgers
        if (offload := ledger.offload) is not None
        and not offload.replicas_gone
        and offload.replicas_until_ms is not None
        and offload.replicas_until_ms <= unix_ms
    }


def unnamed_files(
    ledger_list: LedgerList | None, job: str, found: Collection[str], unix_ms: int
) -> list[str]:
    """The places of `found` that no list names, by whatever URI, and none will; none of a topic that does not exist (None).

    `found` was listed after the run `job` had begun, and before the list was read: while that has the run, no other has begun to write.
    The files of the run itself stay: it may name them yet. So do those of ledgers that were restored, until their lag is over, and all files of a
    topic that was deleted: a retention deletes these after a grace, because a restore of the metadata may bring the list back (rule 73).
    """
    if ledger_list is None or ledger_list.offload_job != job:
        return []
    named = {name_of(ledger.offload.place) for ledger in ledger_list.ledgers if ledger.offload is not None}
    restored = [ledger.restored for ledger in ledger_list.ledgers if ledger.restored is not None]
    named.update(name_of(each.place) for each in restored if each.file_until_ms > unix_ms)
    return sorted(place for place in found if name_of(place) not in named and job not in name_of(place))
