"""How patiently a recovery works, and how much it holds at once."""

from dataclasses import dataclass

from daybook.core.format.frame import FRAME_ENTRIES_MAX


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """How much a recovery asks for at once, and how long it waits."""

    window_entries: int = FRAME_ENTRIES_MAX
    window_bytes: int = 4 * 1024 * 1024
    """What one read may bring; the next is sent while the last one's entries are written back."""
    write_back_bytes_max: int = 16 * 1024 * 1024
    """Reading pauses while more than this is not yet held by Qa bookies."""
    straggler_bytes_max: int = 64 * 1024 * 1024
    """A bookie that left more than this unanswered has failed."""
    speculate_ms: int = 300
    """A read without an answer is tried on the other replicas after this (rule 7)."""
    metadata_retry_ms: int = 500
