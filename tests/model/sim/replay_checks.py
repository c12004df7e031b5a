"""What a replay must give back: all that was synced, and nothing that was never written (rule 23, rule 24, rule 25).

Checked when a bookie comes back, so that a journal that forgets is caught at once, whether or not a reader would have
noticed that one replica of several is gone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.ids import LedgerId
from tests.model.sim.disk import Entries, RecordWritten, Stored, Waiting

Fail: TypeAlias = Callable[[str, str], None]
"""Ends the run: the name of what was violated, and how."""


def check_replay(
    fail: Fail,
    before: Mapping[LedgerId, Stored],
    after: Mapping[LedgerId, Stored],
    waiting: Sequence[Waiting],
    accepted: Mapping[LedgerId, Entries],
) -> None:
    """`before`: what was durable, without what was deleted; `waiting`: what may have become so; `accepted`: all there ever was."""
    for ledger_id, was in before.items():
        if ledger_id < 0:
            continue  # a marker of the bookie's own
        now = after.get(ledger_id, Stored(LedgerRecord(ledger_id)))
        lost = sorted(was.entries.keys() - now.entries.keys())
        if lost:
            fail("what was synced is there after a restart", f"{lost} of ledger {ledger_id} (rule 23)")
        if was.record.fenced and not now.record.fenced:
            fail("a fence survives a restart", f"that of ledger {ledger_id} (rule 4)")
        if now.record.limbo_nonce not in _marks(ledger_id, was, waiting):
            fail("a limbo mark survives a restart", f"that of ledger {ledger_id} (rule 24, rule 29)")
        if (now.last_add_confirmed, now.length_at_lac) < (was.last_add_confirmed, was.length_at_lac):
            fail("a LAC survives a restart", f"that of ledger {ledger_id} (rule 24)")
    for ledger_id, now in after.items():
        written = accepted.get(ledger_id, {})
        wrong = [entry for entry, data in now.entries.items() if written.get(entry) != data]
        if wrong:
            fail("a replay gives back what was written", f"not {wrong} of ledger {ledger_id} (rule 44)")


def _marks(ledger_id: LedgerId, was: Stored, waiting: Sequence[Waiting]) -> set[str | None]:
    """The limbo marks that may stand now."""
    return {was.record.limbo_nonce} | {
        each.written.record.limbo_nonce
        for each in waiting
        if isinstance(each.written, RecordWritten) and each.written.ledger_id == ledger_id
    }
