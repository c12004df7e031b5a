"""What an owner of a topic runs for one ledger: its writer, a recovery, a deletion.

Each is a driver of its own machine, as everywhere in the simulator, and dies with its owner. What it reports reaches the owner's
machine in a later turn, never from inside a step.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.errors import DaybookError, LedgerClosedError, NoSuchLedgerError
from daybook.core.format.frame import Buffer
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.events import (
    Appended,
    HandleFailed,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
)
from tests.model.sim.actors import DeletionClient, RecoveryClient
from tests.model.sim.writers import WriterClient

if TYPE_CHECKING:
    from tests.model.sim.topics.owner import TopicOwner

KEY: Final = "key"
"""As of every ledger that a machine of the simulator writes."""


def end_of(request_id: int, metadata: LedgerMetadata) -> LedgerEnded:
    """What a closed ledger's metadata says."""
    return LedgerEnded(request_id, metadata.last_entry + 1, metadata.length)


class TopicWriter(WriterClient):
    """The handle of a ledger that an owner has created. Its ids are promised, as those of `append_soon` are."""

    def __init__(self, owner: "TopicOwner", name: str, metadata: LedgerMetadata, version: int) -> None:
        self._owner = owner
        self._close_request = 0
        super().__init__(owner.cluster, name, metadata, version)
        self._carry_out[fx.Fail] = self._fail

    def _append_later(self) -> None:
        """Its owner appends."""

    def append(self, payloads: Sequence[Buffer]) -> None:
        """Append, behind all that was appended before."""
        if self.done or self._has_ended:
            self._failed(LedgerClosedError(f"ledger {self.ledger_id} takes no more"))
            return
        self._token += 1
        entries = [bytes(payload) for payload in payloads]
        first = self._next
        self._next += len(entries)
        for entry_id, entry in enumerate(entries, first):
            self.cluster.checkers.appended(self.ledger_id, entry_id, entry)
        self.checks.appending(self._token, range(first, self._next))
        self.feed(ev.AppendRequested(self._token, entries))
        self.machine.promise_ids()
        self.checks.promised(self._token)
        self.room()

    def close_for(self, request_id: int) -> None:
        """Close the ledger; the owner receives where it ends."""
        self._close_request = request_id
        if not self.done:
            self.close()
        elif self.machine.metadata.is_closed:
            self._owner.report(end_of(request_id, self.machine.metadata))
        else:
            error = LedgerClosedError(f"ledger {self.ledger_id} is not this owner's to close")
            self._owner.report(LedgerRequestFailed(request_id, error))

    def abandon(self) -> None:
        """Give the handle up; what is under way is unknown."""
        if not self.done:
            self.finish()

    def crash(self) -> None:
        """It has no process of its own."""
        self._owner.crash()

    def die(self) -> None:
        """Its owner died."""
        super().crash()

    # What it reports

    def _complete(self, effect: fx.Complete) -> None:
        super()._complete(effect)
        self._owner.report(Appended(self.ledger_id, effect.last))

    def _fail(self, effect: fx.Fail) -> None:
        if self._close_request and effect.token == self._token:
            self._owner.report(LedgerRequestFailed(self._close_request, effect.error))
        else:
            self._failed(effect.error)

    def _failed(self, error: DaybookError) -> None:
        self._owner.report(HandleFailed(self.ledger_id, error))

    def _closed(self, effect: fx.Closed) -> None:
        super()._closed(effect)
        if self._close_request:
            self._owner.report(end_of(self._close_request, effect.metadata))


class TopicRecovery(RecoveryClient):
    """Recovers a ledger for an owner."""

    def __init__(self, owner: "TopicOwner", name: str, ledger_id: LedgerId, request_id: int) -> None:
        self._owner = owner
        self._request_id = request_id
        super().__init__(owner.cluster, name, ledger_id)

    def crash(self) -> None:
        """It has no process of its own."""
        self._owner.crash()

    def die(self) -> None:
        """Its owner died."""
        super().crash()

    def _recovered(self, effect: fx.Recovered) -> None:
        super()._recovered(effect)
        self._owner.report(end_of(self._request_id, effect.metadata))

    def _recovery_failed(self, effect: fx.RecoveryFailed) -> None:
        super()._recovery_failed(effect)
        self._owner.report(LedgerRequestFailed(self._request_id, effect.error))


class TopicDeletion(DeletionClient):
    """Deletes a ledger for an owner."""

    def __init__(self, owner: "TopicOwner", name: str, ledger_id: LedgerId, request_id: int) -> None:
        self._owner = owner
        self._request_id = request_id
        self._error: DaybookError | None = None
        super().__init__(owner.cluster, name, ledger_id)

    def crash(self) -> None:
        """It has no process of its own."""
        self._owner.crash()

    def die(self) -> None:
        """Its owner died."""
        super().crash()

    def _recovery_failed(self, effect: fx.RecoveryFailed) -> None:
        if not isinstance(effect.error, NoSuchLedgerError):
            self._error = effect.error
        super()._recovery_failed(effect)

    def finish(self) -> None:
        """See Driver."""
        super().finish()
        if self._error is None:
            self._owner.report(LedgerDeleted(self._request_id))
        else:
            self._owner.report(LedgerRequestFailed(self._request_id, self._error))
