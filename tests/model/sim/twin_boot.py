"""How a process boots whose predecessor may live (rule 57), beside the bookie model whose life it begins."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.model.sim.metadata_model import Stamp
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.bookie_model import SimBookie

RETRY_US: Final = 20 * MS


class TwinBoot:
    """One claim from the list to the stamp."""

    def __init__(
        self, bookie: "SimBookie", mark: Callable[[object], None], serve: Callable[[], None]
    ) -> None:
        """`mark` takes the list and marks limbo, after which `marked` is called; `serve` follows the stamp."""
        self._bookie = bookie
        self._mark = mark
        self._serve = serve

    def begin(self) -> None:
        """Take the claim; again, whenever it was lost."""
        bookie, store = self._bookie, self._bookie.cluster.store
        store.request(
            bookie.live_session(), self._claimed, store.claim, bookie.session, bookie.name, bookie.place
        )

    def _claimed(self, answer: object) -> None:
        bookie, store = self._bookie, self._bookie.cluster.store
        if answer is Stamp.REFUSED:
            bookie.cluster.twins.refused(bookie)
            return
        if answer is not Stamp.DONE:
            bookie.later(RETRY_US, self.begin)
            return
        store.request(bookie.session, self._mark, lambda: dict(store.ledgers))

    def marked(self) -> None:
        """The marks are durable."""
        bookie, store = self._bookie, self._bookie.cluster.store
        store.request(bookie.session, self._stamped, self._stamp)

    def _stamp(self) -> Stamp:
        """At ZooKeeper."""
        bookie, store = self._bookie, self._bookie.cluster.store
        outcome = store.stamp(bookie.session, bookie.name, bookie.place)
        if outcome is Stamp.DONE and not bookie.is_stamped:
            bookie.is_stamped = True
            bookie.cluster.twins.stamped(bookie)
        return outcome

    def _stamped(self, answer: object) -> None:
        if answer is Stamp.REFUSED:
            self._bookie.cluster.twins.refused(self._bookie)
        elif self._bookie.is_stamped:
            self._serve()
        else:
            self.begin()
