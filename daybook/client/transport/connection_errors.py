"""Why bookies do not answer, for the person who reads an error.

The machines know only that a connection was lost, and that is all they need. A person who reads that there are not
enough bookies needs to know that a certificate is the reason, so such errors get what is known about each bookie.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from daybook.core.errors import (
    DaybookError,
    NotEnoughBookiesError,
    NotEnoughReplicasError,
    RecoveryFailedError,
)
from daybook.core.ids import BookieId
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook.wire.connection_failure import TLS, why_unreachable

log = get_logger(__name__)

RECENT_MS: Final = 60_000
"""An older failure does not explain a present error."""
_SHOWN_MAX: Final = 3
_ABOUT_BOOKIES: Final = (NotEnoughBookiesError, NotEnoughReplicasError, RecoveryFailedError)


class _ConnectionError(NamedTuple):
    """What went wrong last with a bookie."""

    address: str
    why: str
    since_ms: int


class ConnectionErrors:
    """What went wrong last with each bookie."""

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        """Know of none."""
        self._now_ms = now_ms
        self._known: dict[BookieId, _ConnectionError] = {}
        self._warned: set[tuple[BookieId, str]] = set()

    def note(self, bookie: BookieId, address: str, details: str, *, secure: bool) -> None:
        """Remember that a call to `bookie` failed with `details`; "" forgets what was."""
        if not details:
            self._known.pop(bookie, None)
            self._warned = {(other, why) for other, why in self._warned if other != bookie}
            return
        why = why_unreachable(details, address, secure=secure)
        self._known[bookie] = _ConnectionError(address, why, self._now_ms())
        if TLS in why and (bookie, why) not in self._warned:
            self._warned.add((bookie, why))
            log.warning("bookie cannot be reached", bookie=bookie, address=address, why=why)

    def explain(self, error: DaybookError) -> DaybookError:
        """`error`, and what is known of the bookies if it is about too few of them."""
        if not isinstance(error, _ABOUT_BOOKIES):
            return error
        now_ms = self._now_ms()
        by_reason: dict[str, list[str]] = {}
        for bookie, known in sorted(self._known.items()):
            if now_ms - known.since_ms <= RECENT_MS:
                by_reason.setdefault(known.why, []).append(f"{bookie} at {known.address}")
        if not by_reason:
            return error
        shown = [f"{', '.join(bookies)}: {why}" for why, bookies in list(by_reason.items())[:_SHOWN_MAX]]
        explained = type(error)(f"{error} (last failure of {'; of '.join(shown)})")
        explained.__cause__ = error.__cause__
        return explained
