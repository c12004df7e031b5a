"""Which changes of a ledger's metadata are legal: the theory of a ledger's life, and the one judge of every change.

A ledger is OPEN while one client, its writer, may change it. Whoever wants to end it without its writer first marks it
IN_RECOVERY: from then on every compare-and-set of the writer fails (rule 11). It is CLOSED once its last entry is
decided, and that is final: readers may cache it, and a second recovery returns it as it is. A ledger never goes back, since
somebody has acted on what it was.

The other fields follow from that. Fragments are appended, or the last one is replaced, and only until the close
(rule 17); repair replaces a bookie of a fragment at any time (rule 32). The writer token is set once (rule 53). What a
ledger was created with never changes.
"""

from collections.abc import Mapping
from typing import Final

from daybook.core.errors import MetadataError
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState

TRANSITIONS: Final[Mapping[tuple[LedgerState, LedgerState], str]] = {
    (
        LedgerState.OPEN,
        LedgerState.IN_RECOVERY,
    ): "a recovery begins, or what a person does without one (rule 11, rule 61)",
    (LedgerState.OPEN, LedgerState.CLOSED): "its writer closes it",
    (
        LedgerState.IN_RECOVERY,
        LedgerState.CLOSED,
    ): "a recovery closes it (rule 11), or a person does without one (rule 61)",
}

_CONSTANT: Final = ("ledger_id", "quorum", "password_hash", "custom_metadata", "created_at_ms")


def check_transition(old: LedgerMetadata, new: LedgerMetadata) -> None:
    """Raise MetadataError unless one legal step leads from `old` to `new`.

    The judge of the simulator and of the explorer, and the last line of defence before a compare-and-set.
    """
    why = _why_illegal(old, new)
    if why:
        msg = f"ledger {old.ledger_id}: {why}"
        raise MetadataError(msg)


def _why_illegal(old: LedgerMetadata, new: LedgerMetadata) -> str | None:
    for name in _CONSTANT:
        if getattr(old, name) != getattr(new, name):
            return f"{name} never changes"
    if new.state is not old.state and (old.state, new.state) not in TRANSITIONS:
        return f"a ledger never goes from {old.state.value} back to {new.state.value}"
    if old.writer_token is not None and new.writer_token != old.writer_token:
        return "the writer token is set once (rule 53)"
    if not new.is_closed and not set(old.restored_among) <= set(new.restored_among):
        return "what is to be asked before the close of a restored ledger stays until the close (rule 68)"
    if new.restored_among != old.restored_among and not old.restored_among:
        return "only a restored ledger is recovered as one (rule 68)"
    if old.is_closed and (new.last_entry, new.length) != (old.last_entry, old.length):
        return "a close is final (rule 11)"
    old_starts = [fragment.first_entry for fragment in old.fragments]
    new_starts = [fragment.first_entry for fragment in new.fragments]
    if old.is_closed and new_starts != old_starts:
        return "the fragments of a closed ledger keep their places"
    if new_starts[: len(old_starts)] != old_starts:
        return "fragments are appended or the last one is replaced, never removed or moved (rule 17)"
    return None
