"""What the rest of the simulator asks of a client, whatever it is made of: a machine and its driver, or what ships."""

from collections.abc import Mapping
from enum import Enum

from daybook.core.bookie.ledger import Purpose
from daybook.core.errors import Code
from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook.core.stream import StreamAnswer
from tests.model.sim.metadata_model import Session
from tests.model.sim.network import Stream
from tests.model.sim.world import Process


class Activity(Enum):
    """What a client does with its ledger, as far as another one may care."""

    NONE = "nothing special"
    RECOVERY = "recovers it"
    REPAIR = "repairs it"


class ClientProcess(Process):
    """A process that is no bookie."""

    ledger_id: LedgerId
    done: bool

    @property
    def activity(self) -> Activity:
        """What it does."""
        return Activity.NONE

    def session_now(self) -> Session:
        """Its present session at ZooKeeper."""
        raise NotImplementedError

    def crash(self) -> None:
        """The process dies; its session expires by itself some time later."""
        raise NotImplementedError

    def registered_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """A watch fired, and this is the list of bookies."""
        self.bookies_changed(registered)

    def bookies_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """A watch fired; for machines that choose bookies."""

    def metadata_connection(self, *, connected: bool) -> None:
        """ZooKeeper became unavailable or answers again; for machines that care."""

    def attached(self, stream: Stream, ledger_id: LedgerId, purpose: Purpose, code: Code) -> None:
        """A bookie judged a password."""
        raise NotImplementedError

    def answered(self, stream: Stream, answer: StreamAnswer, boot_id: str) -> None:
        """A bookie decided frames of a stream."""
        raise NotImplementedError

    def stream_lost(self, stream: Stream) -> None:
        """A stream broke."""
        raise NotImplementedError
