"""A writer's limits and delays in one place, each with a bound, and the warning about weak ack quorums (rule 8).

Everything that could grow without end in a writer has its limit here: how far one bookie may lag behind the others,
how often the ensemble may change, how long writes wait for a quorum that is lost. How much may be appended and not yet
acknowledged is the driver's limit, because the driver can make its user wait.
"""

from dataclasses import dataclass
from typing import Final

from daybook.core.quorum import Quorum

PROBE_DOUBLINGS_MAX: Final = 6
"""How often `WriterPolicy.probe_ms` is doubled for a bookie that keeps failing: up to 64 times as long."""


LAC_PUBLISH_MS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class WriterPolicy:
    """How a writer treats time, failures and slow bookies.

    The driver's `Tick` carries the time. A writer that waits for one should get it within 50 ms, so that an idle writer's LAC is
    out within 100 ms, unless `lac_publish_ms` is longer (rule 48). Raises ValueError for a period beyond `LAC_PUBLISH_MS_MAX`.
    """

    frame_bytes_target: int = 256 * 1024
    """Payload bytes at which a frame is sealed without waiting for a flush."""
    lac_publish_ms: int = 50
    """How long a LAC may go unpublished before it is sent without entries. Longer where no reader asks bookies while the ledger is
    written: each costs the writer's process a few microseconds."""
    go_on_without_spare: bool = True
    """Whether to continue with Qa bookies where no replacement exists (rule 45); otherwise the handle ends."""
    probe_ms: int = 500
    """How often a missing bookie is asked whether it is back; twice as long each time it went missing again, at most
    `PROBE_DOUBLINGS_MAX` times."""
    quorum_wait_ms: int = 10_000
    """How long writes wait for Qa bookies before the handle ends; 0: not at all."""
    ensemble_changes_max: int = 100
    """The handle ends instead of the next change, so that the layer above rolls to a new ledger (rule 21). It ends also where
    a bookie that was missing is back, which would otherwise be left out for as long as the ledger is written."""
    lag_ms_max: int = 10_000
    """A bookie that owes an acknowledged entry for longer is declared failed."""
    lag_bytes_max: int = 32 * 1024 * 1024
    lag_bytes_ms: int = 2_000
    """A bookie that owes more bytes of acknowledged entries, the oldest for longer than this, is declared failed.

    A disk that pauses for a moment under full load owes as much, and must not be declared failed for it.
    """
    quarantine_ms: int = 30_000
    """How long a failed or slow bookie is not chosen again, unless it restarts."""
    metadata_retry_ms: int = 500
    """The pause before metadata that could not be read is read again."""

    def __post_init__(self) -> None:
        """Check the bounds."""
        if self.lac_publish_ms > LAC_PUBLISH_MS_MAX:
            msg = (
                f"lac_publish_ms={self.lac_publish_ms}: a reader that tails the ledger would wait as long for its last entry; "
                f"at most {LAC_PUBLISH_MS_MAX} are allowed"
            )
            raise ValueError(msg)

    @property
    def lag_noticed_ms(self) -> int:
        """How old a debt must be to matter."""
        return min(self.lag_ms_max, self.lag_bytes_ms) + 1


def quorum_warning(quorum: Quorum) -> str | None:
    """Why this ack quorum is weak, in words; None if it is not (rule 8: warn when Qa < (Qw + 1) / 2)."""
    _, write_quorum, ack_quorum = quorum
    if 2 * ack_quorum >= write_quorum + 1:
        return None
    return (
        f"an entry is acknowledged with {ack_quorum} of {write_quorum} copies: losing {ack_quorum} bookies loses it, "
        f"and recovery needs {quorum.coverage} of every {write_quorum} bookies; "
        f"use an ack quorum of at least {write_quorum // 2 + 1}"
    )
