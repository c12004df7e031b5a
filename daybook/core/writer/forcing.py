"""Force: with deferred sync the only thing that moves the LAC (rule 22).

Without deferred sync every acknowledged entry is durable already, and a force answers when what was appended before it
is acknowledged.
"""

from daybook.core.effects import Fail, Forced, SendForce
from daybook.core.errors import REACTIONS, Code, ForceFailedError, Reaction
from daybook.core.events import ForceAnswered, ForceRequested
from daybook.core.ids import NO_ENTRY, BookieId
from daybook.core.writer.closing import Closing
from daybook.core.writer.errors import bookie_refuses_ledger, takes_no_more, unforced_lost
from daybook.core.writer.force import PendingForce


class Forcing(Closing):
    """The part of a writer that forces."""

    def _force_requested(self, event: ForceRequested) -> None:
        if self._ended is not None or self._is_closing:
            self._out.append(
                Fail(event.token, takes_no_more(self.metadata.ledger_id, self._ended or self._retired))
            )
            return
        self._seal(only_full=False)
        self._forces.waiting.append(PendingForce(event.token, self.last_add_pushed))
        self._forces.passed(self._completed, self._completed_length)
        self._try_force()

    def _try_force(self) -> None:
        """Answer the forces that are done; ask every bookie for the next one when all have accepted its entries."""
        forces = self._forces
        while forces.is_answered(self.last_add_confirmed):
            self._out.append(Forced(forces.waiting.popleft().token, self.last_add_confirmed))
        point = forces.next_point
        if point == NO_ENTRY or any(batch.last <= point for batch in self._window.lagging.values()):
            return
        force = forces.begin()
        for member in self._window.members:
            force.owing[member.bookie] = self._ids.next()
            self._out.append(SendForce(member.bookie, force.owing[member.bookie]))

    def _force_answered(self, event: ForceAnswered) -> None:
        force = self._forces.active
        if force is None or force.owing.get(event.bookie) != event.request_id:
            return
        if event.code is not Code.OK:
            is_final = REACTIONS[event.code] is Reaction.HANDLE_ENDS
            if is_final:
                self._end(bookie_refuses_ledger(self.metadata.ledger_id, event.bookie, event.code))
            else:
                self._end(self._unforced_lost(event.bookie, f"failed ({event.code.name})"), close=True)
            return
        if not self._forces.same_boot(event.bookie, event.boot_id):
            self._end(self._unforced_lost(event.bookie, "restarted"), close=True)
            return
        del force.owing[event.bookie]
        if not force.owing:
            assert force.point is not None
            self._confirm(force.point, force.length)
            self._forces.was_forced(self.last_add_pushed)
            self._out.append(Forced(force.token, self.last_add_confirmed))
            self._try_force()
            self._try_close()

    def _unforced_lost(self, bookie: BookieId, what: str) -> ForceFailedError:
        return unforced_lost(self.metadata.ledger_id, bookie, what, self.last_add_confirmed)
