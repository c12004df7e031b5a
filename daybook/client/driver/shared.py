"""What all open ledgers of a client share."""

from daybook.client.driver.callbacks import Callbacks
from daybook.client.driver.timers import Timers
from daybook.client.pending import CLIENT_PENDING_BYTES_MAX, PendingBytes


class Shared:
    """A clock that wakes writers, the bytes they have pending together, and the calls to their users."""

    def __init__(self, now_ms: int, pending_bytes_max: int = CLIENT_PENDING_BYTES_MAX) -> None:
        """It is `now_ms`; all ledgers together may have `pending_bytes_max` bytes pending."""
        self.timers = Timers(now_ms)
        self.pending = PendingBytes(pending_bytes_max)
        self.callbacks = Callbacks()
