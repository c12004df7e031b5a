"""What the leader does: it chooses a broker for each bundle that is looked up and has no owner, and moves bundles off busy brokers.

The choices need no agreement: two leaders for a moment would only send two clients to two brokers, and one of these gets the lease.
So only what moves bundles asks whether the leadership is certain.
"""

from collections.abc import Set as AbstractSet
from contextlib import suppress

from daybook.core.errors import MetadataUnavailableError
from daybook.core.topics.ownership.assignment import Assigner
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId
from daybook.core.topics.ownership.shedding import Shedder, SheddingPolicy
from daybook.metadata.brokers import BrokerDirectory
from daybook.metadata.bundles import BundleDirectory, Order, OrderKind
from daybook.metadata.lease import Lease
from daybook.metadata.store.store import StoreClosedError, StoreError
from daybook.runtime.clock import monotonic_ms, monotonic_s, sleep_until
from daybook.runtime.logs import get_logger
from daybook_broker.ownership.members import Members
from daybook_broker.ownership.session import OwnSession

log = get_logger(__name__)


class Leader:
    """This broker as a candidate, and while it leads."""

    def __init__(
        self,
        brokers: BrokerDirectory,
        bundles: BundleDirectory,
        session: OwnSession,
        members: Members,
        broker: BrokerId,
        *,
        shedding: SheddingPolicy,
        shed_s: float,
    ) -> None:
        """It does not lead yet."""
        self._election = brokers.election(broker)
        self._bundles = bundles
        self._session = session
        self._members = members
        self._broker = broker
        self._assigner = Assigner()
        self._policy = shedding
        self._shed_s = shed_s
        self._lease: Lease | None = None

    @property
    def leads(self) -> bool:
        """Whether this broker certainly leads."""
        return self._lease is not None and self._lease.is_certain

    async def campaign(self) -> None:
        """Wait to lead, and lead, again and again; a cancelled campaign steps down."""
        while True:
            try:
                self._lease = await self._election.campaign()
                log.info("this broker leads", broker=self._broker)
                await self._lease.lost()
                log.warning("this broker leads no more", broker=self._broker)
            except StoreClosedError:
                return
            except (MetadataUnavailableError, StoreError) as error:
                log.warning("the campaign for the leadership failed; trying again", why=str(error))
            finally:
                await self._step_down()

    async def _step_down(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            with suppress(MetadataUnavailableError):  # the node goes with the session then
                await lease.release(timeout_s=1.0)

    def choose(self, bundle: Bundle, answering: AbstractSet[BrokerId]) -> BrokerId | None:
        """The broker that is to own a bundle; None if none answers."""
        brokers = self._members.view.brokers
        loads = {broker: brokers[broker].load for broker in sorted(answering & brokers.keys())}
        return self._assigner.choose(bundle, loads, monotonic_ms())

    async def shed(self) -> None:
        """Move bundles off busy brokers while this broker leads, for ever."""
        due_s = monotonic_s()
        shedder = Shedder(self._policy)
        while True:
            due_s = max(due_s + self._shed_s, monotonic_s())
            await sleep_until(due_s)
            if not self.leads:
                shedder = Shedder(self._policy)
                continue
            loads = {broker: info.load for broker, info in self._members.view.brokers.items()}
            for move in shedder.cycle(loads, monotonic_ms()):
                log.info("moving a bundle", bundle=str(move.bundle), source=move.source, target=move.target)
                order = Order(OrderKind.UNLOAD, move.bundle, move.target)
                with suppress(MetadataUnavailableError):  # the next cycles will want to move it again
                    await self._bundles.send(move.source, order, self._session.session_id)
