"""Which changes of a ledger's metadata are legal, and whose: a second implementation, written from docs/protocol.md.

`daybook.core.ledger.transitions.check_transition` lets through what any party may do; the judge here also knows who asks. Each
party has its few changes and no others: that is what keeps a deletion, a recovery and a repair of one ledger from
undoing each other (rule 9, rule 11, rule 17, rule 19, rule 31, rule 53, rule 56).
"""

from enum import Enum

from daybook.core.ledger.metadata import Fragment, LedgerMetadata, LedgerState

OPEN, IN_RECOVERY, CLOSED = LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED


class Party(Enum):
    """Who changes metadata."""

    WRITER = "the writer"
    RECOVERY = "a recovery"
    REPAIR = "a repair"
    COLLECTOR = "a bookie that removes over-replicated entries"


def why_illegal(party: Party, old: LedgerMetadata, new: LedgerMetadata) -> str | None:
    """Why `party` may not make `new` of `old`, in words; None if it may."""
    if (old.ledger_id, old.quorum, old.password_hash, dict(old.custom_metadata), old.created_at_ms) != (
        new.ledger_id,
        new.quorum,
        new.password_hash,
        dict(new.custom_metadata),
        new.created_at_ms,
    ):
        return "what a ledger is created with never changes"
    if party is not Party.WRITER and new.writer_token != old.writer_token:
        return "only an attach sets the writer token (rule 53)"
    if old.state is CLOSED and (new.state, new.last_entry, new.length) != (
        CLOSED,
        old.last_entry,
        old.length,
    ):
        return "a close is final (rule 11)"
    return _JUDGES[party](old, new)


def _writer(old: LedgerMetadata, new: LedgerMetadata) -> str | None:
    """Attach once; another last fragment; close."""
    if old.state is not OPEN:
        return f"a writer changes nothing of a ledger that is {old.state.value} (rule 11)"
    if new.state is IN_RECOVERY:
        return "a writer begins no recovery"
    if old.writer_token != new.writer_token:
        if old.writer_token is not None or new.fragments != old.fragments or new.state is not OPEN:
            return "an attach is made once, and is a change of its own (rule 53)"
        return None
    if new.state is CLOSED:
        return None if new.fragments == old.fragments else "a writer's close changes no fragment"
    return _only_the_last_fragment_is_new(old.fragments, new.fragments)


def _recovery(old: LedgerMetadata, new: LedgerMetadata) -> str | None:
    """Mark; close with the changes of its own ensemble."""
    if old.state is OPEN:
        if new.state is not IN_RECOVERY or new.fragments != old.fragments:
            return "a recovery begins by its mark and nothing else"
        return None
    if new.state is IN_RECOVERY:
        return (
            None if new.fragments == old.fragments else "a recovery names new bookies when it closes (rule 9)"
        )
    if old.state is CLOSED:
        return "there is nothing to recover (rule 11)"
    before, after = old.fragments, new.fragments
    kept = len(before) - 1
    if after[:kept] != before[:kept]:
        return "a recovery changes no fragment but the last (rule 56)"
    if len(after) <= kept or after[kept].first_entry != before[kept].first_entry:
        return "a recovery moves no fragment"
    return None


def _repair(old: LedgerMetadata, new: LedgerMetadata) -> str | None:
    """Other bookies at some positions of one fragment that is not written to."""
    if (new.state, new.last_entry, new.length) != (old.state, old.last_entry, old.length):
        return "a repair changes no state"
    if len(old.fragments) != len(new.fragments):
        return "a repair neither adds nor removes fragments"
    changed = [
        index
        for index, pair in enumerate(zip(old.fragments, new.fragments, strict=True))
        if pair[0] != pair[1]
    ]
    if len(changed) != 1:
        return f"a repair changes one fragment, not {len(changed)}"
    before, after = old.fragments[changed[0]], new.fragments[changed[0]]
    if (before.first_entry, before.length_before) != (after.first_entry, after.length_before):
        return "a repair moves no fragment"
    if changed[0] == len(old.fragments) - 1 and old.state is not CLOSED:
        return "the last fragment of an open ledger is not repaired (rule 31)"
    stay = set(before.bookies) & set(after.bookies)
    if any(before.bookies.index(bookie) != after.bookies.index(bookie) for bookie in stay):
        return "a repair keeps the positions of those that stay (rule 32)"
    return None


def _collector(old: LedgerMetadata, new: LedgerMetadata) -> str | None:
    """The version alone."""
    if old.state is not CLOSED:
        return "replicas are removed only of closed ledgers (rule 47)"
    return None if new == old else "a removal raises the version and changes nothing (rule 47)"


def _only_the_last_fragment_is_new(before: tuple[Fragment, ...], after: tuple[Fragment, ...]) -> str | None:
    """One fragment more, or another in the place of the last one with the same first entry (rule 17)."""
    last, kept = after[-1], after[:-1]
    if kept == before:
        return (
            None if last.first_entry > before[-1].first_entry else "a new fragment begins after the last one"
        )
    if kept != before[:-1]:
        return "a writer changes no older fragment: that would undo a repair (rule 19)"
    if last.first_entry != before[-1].first_entry:
        return "a fragment is replaced only by one that begins where it does (rule 17)"
    return None


_JUDGES = {
    Party.WRITER: _writer,
    Party.RECOVERY: _recovery,
    Party.REPAIR: _repair,
    Party.COLLECTOR: _collector,
}
