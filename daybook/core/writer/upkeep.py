"""What a writer does as time passes and bookies come and go: publish the LAC, look after the slow and the missing.

An idle writer's LAC gets a frame of its own, or a tailing reader would never see the last entry (rule 48). The same
frame asks a missing bookie whether it is back (rule 45). A bookie that falls too far behind the others has failed: the
circuit breaker keeps one slow disk from holding the memory of every writer.
"""

from collections.abc import Mapping

from daybook.core.events import BookiesChanged
from daybook.core.format.frame import encode_frame
from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from daybook.core.writer.forcing import Forcing
from daybook.core.writer.window import Member, MemberState


class Upkeep(Forcing):
    """The part of a writer that time drives."""

    def pass_time(self, now_ms: int) -> bool:
        """Take note of the time; whether a `Tick` has anything to do now.

        A client may have thousands of writers, nearly all of which have nothing to do at nearly every tick.
        """
        self._now_ms = max(self._now_ms, now_ms)
        if self._update.is_pending or self._reported_missing or self._quarantine or self._is_closing:
            return True
        since_ms = self._unpublished_since_ms
        if since_ms is not None and self._now_ms - since_ms >= self._policy.lac_publish_ms:
            return True
        owed_since_ms = self._window.oldest_lag_ms
        return owed_since_ms is not None and self._now_ms - owed_since_ms > self._policy.lag_noticed_ms

    def _publish_lac(self) -> None:
        """Tell the bookies the LAC if no frame has carried it for a while, or a tailing reader waits for ever (rule 48)."""
        since_ms = self._unpublished_since_ms
        if since_ms is None or self._now_ms - since_ms < self._policy.lac_publish_ms:
            return
        frame = self._lac_frame()
        for member in self._window.in_state(MemberState.LIVE):
            self._window.publish(member, frame, self._out)
        self._unpublished_since_ms = None

    def _lac_frame(self) -> bytes:
        lac = self.last_add_confirmed
        return encode_frame(
            self.metadata.ledger_id,
            lac + 1,
            [],
            [],
            last_add_confirmed=lac,
            length_at_lac=self.length_at_lac,
        )

    def _break_slow(self) -> None:
        """The circuit breaker: who owes acknowledged entries for too long, or too many of them, has failed."""
        policy = self._policy
        for member in self._window.in_state(MemberState.LIVE):
            since_ms = self._window.lag_since_ms(member)
            if since_ms is None:
                continue
            lag_ms = self._now_ms - since_ms
            is_full = lag_ms > policy.lag_bytes_ms and self._window.lag_bytes(member) > policy.lag_bytes_max
            if is_full or lag_ms > policy.lag_ms_max:
                self._member_failed(member)

    def _probe_missing(self) -> None:
        """Ask the bookies that the writer goes on without whether they are back.

        Only those that could take entries: registered and writable. One that keeps failing is asked less and less,
        because each return costs an ensemble change.
        """
        for member in self._window.in_state(MemberState.MISSING):
            if self._now_ms >= member.next_probe_ms and _is_writable(self._bookies, member.bookie):
                self._probe(member)

    def _probe(self, member: Member) -> None:
        self._schedule_probe(member)
        if not member.outstanding:
            self._window.publish(member, self._lac_frame(), self._out)

    def _probe_answered(self, member: Member) -> None:
        if member.state is MemberState.MISSING:
            self._window.set_state(member, MemberState.RETURNED)
            self._advance()

    def _bookies_changed(self, event: BookiesChanged) -> None:
        before, self._bookies = self._bookies, event.bookies
        self._quarantine.release(self._bookies, self._now_ms)
        if self._ended is not None:
            return
        for member in self._window.in_state(MemberState.MISSING):
            if _came_back(member.bookie, before, self._bookies):
                self._probe(member)
        if self.is_degraded:
            self._advance()


def _is_writable(bookies: Mapping[BookieId, BookieInfo], bookie: BookieId) -> bool:
    return bookie in bookies and bookies[bookie].writable


def _came_back(
    bookie: BookieId, before: Mapping[BookieId, BookieInfo], now: Mapping[BookieId, BookieInfo]
) -> bool:
    """Whether `bookie` is writable now and was not, or runs anew."""
    if not _is_writable(now, bookie):
        return False
    return not _is_writable(before, bookie) or before[bookie].boot_id != now[bookie].boot_id
