"""What a recovery may ask for: whom it fenced before it reads, where it begins, what its frames say, what it closes over.

A rule of recovery that is broken shows in the promise only in rare company, because the rules back each other up
(coverage and fencing reads, rule 1 and rule 2, above all). Here each is checked by itself.
"""

from collections.abc import Sequence

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.errors import Code
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import decode_header
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import write_set
from daybook.core.recovery.recovery import LedgerRecovery
from tests.model.sim.checkers import Checkers


class RecoveryChecks:
    """The checks of one recovery."""

    def __init__(self, checkers: Checkers, machine: LedgerRecovery) -> None:
        self._checkers = checkers
        self._machine = machine
        self._has_read = False
        self._found_closed = False
        self._sent: dict[int, tuple[BookieId, list[EntryId]]] = {}
        self._acked: dict[EntryId, set[BookieId]] = {}
        self._asked: dict[int, EntryId] = {}
        self._fences: set[int] = set()
        self._vouched_for: list[EntryId] = []
        """The LACs that those who can vouch for them reported to the last request for fences."""
        self._denials: list[tuple[BookieId, EntryId, ev.ReadAnswered]] = []

    def stepped(self, event: ev.Event, effects: Sequence[fx.Effect]) -> None:
        """The recovery took `event` and asks for `effects`."""
        match event:
            case ev.MetadataRead(metadata=LedgerMetadata() as metadata):
                self._found_closed = self._found_closed or metadata.is_closed
            case ev.FrameAcked(bookie, send_id) if send_id in self._sent:
                for entry in self._sent[send_id][1]:
                    self._acked.setdefault(entry, set()).add(bookie)
            case ev.FenceAnswered(_, request_id, Code.OK, lac, limbo=False) if request_id in self._fences:
                self._vouched_for.append(lac)
            case ev.ReadAnswered(bookie, request_id, Code.OK, limbo=False) if request_id in self._asked:
                self._denials.append((bookie, self._asked[request_id], event))
            case _:
                pass
        fences = {effect.request_id for effect in effects if isinstance(effect, fx.SendFence)}
        if fences:
            self._fences, self._vouched_for = fences, []
        for effect in effects:
            match effect:
                case fx.SendRead():
                    self._asked[effect.request_id] = effect.first
                    self._reads(effect)
                case fx.SendFrame():
                    self._writes_back(effect)
                case fx.CasMetadata(metadata=metadata) if metadata.is_closed:
                    self._closes(metadata)
                case fx.RecoveryFailed():
                    self._fails()
                case _:
                    pass

    def _fail(self, invariant: str, why: str) -> None:
        self._checkers.fail(invariant, f"recovery of ledger {self._machine.ledger_id}: {why}")

    def _reads(self, effect: fx.SendRead) -> None:
        started_with = self._machine.started_with
        assert started_with is not None
        if not effect.fence:
            self._fail("a recovery read fences", f"{effect} does not (rule 2)")
        if effect.first < started_with.last_fragment.first_entry:
            self._fail("a recovery begins in the last fragment", f"it reads entry {effect.first} (rule 5)")
        if not self._has_read:
            self._has_read = True
            self._is_covered(started_with)
            start = max(started_with.last_fragment.first_entry - 1, *self._vouched_for, -1)
            if self._machine.start_lac != start:
                self._fail(
                    "a recovery starts where those say that can vouch",
                    f"at {self._machine.start_lac}, not {start} (rule 5, rule 29)",
                )

    def _is_covered(self, metadata: LedgerMetadata) -> None:
        """No write set has an ack quorum left that would take a normal frame (rule 1)."""
        quorum, members, ledger_id = metadata.quorum, metadata.last_fragment.bookies, metadata.ledger_id
        disks = self._checkers.bookies
        if self._checkers.oracles[ledger_id].deleted:
            return  # a bookie that collected it forgot the fence too, and takes no frame without metadata
        shut = {
            name
            for name in members
            if disks[name].is_fenced_durably(ledger_id) or disks[name].is_in_limbo(ledger_id)
        }
        for residue in range(quorum.ensemble_size):
            names = [members[position] for position in write_set(quorum, residue)]
            if sum(name not in shut for name in names) >= quorum.ack_quorum:
                self._fail("a recovery reads when nothing can be acknowledged", f"{names} still can (rule 1)")

    def _writes_back(self, effect: fx.SendFrame) -> None:
        header = decode_header(effect.frame)
        if header.last_add_confirmed != self._machine.start_lac:
            lac, start = header.last_add_confirmed, self._machine.start_lac
            self._fail("write-back keeps the LAC", f"it sends {lac}, and began at {start} (rule 12)")
        found, _ = decode_entries(effect.frame, header, 0)
        self._sent[effect.send_id] = effect.bookie, [entry.entry_id for entry in found]

    def _closes(self, metadata: LedgerMetadata) -> None:
        """Every entry that it closes over and did not know to be safe was acked by Qa of those it names (rule 9)."""
        self._is_proved(metadata.last_entry + 1)
        for entry in range(self._machine.start_lac + 1, metadata.last_entry + 1):
            members = metadata.fragment_of(entry).bookies
            named = {members[position] for position in write_set(metadata.quorum, entry)}
            if len(named & self._acked.get(entry, set())) < metadata.quorum.ack_quorum:
                self._fail(
                    "a recovery names whom it wrote to", f"too few of {named} have entry {entry} (rule 9)"
                )

    def _is_proved(self, absent: EntryId) -> None:
        """Qf bookies that can vouch for it said in so many words that they never had what would come next (rule 6)."""
        started_with = self._machine.started_with
        assert started_with is not None
        quorum, members = started_with.quorum, started_with.last_fragment.bookies
        denying = {
            bookie
            for bookie, first, answer in self._denials
            if first <= absent <= answer.through
            and absent not in answer.damaged
            and all(entry.entry_id != absent for entry in answer.entries)
        }
        named = {members[position] for position in write_set(quorum, absent)}
        if len(denying & named) < quorum.write_quorum - quorum.ack_quorum + 1:
            self._fail(
                "a close is proved by those that can vouch",
                f"only {denying} deny {absent} (rule 6, rule 8, rule 29)",
            )

    def _fails(self) -> None:
        if self._found_closed:
            self._fail("the loser of a close returns the winner's", "it failed instead (rule 11)")
