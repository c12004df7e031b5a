"""The lists of topics, beside the ledgers, in the metadata service of a run."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from daybook.core.events import CasOutcome
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.ledger_list import LedgerList, check_list_change

if TYPE_CHECKING:
    from tests.model.sim.metadata_model import MetadataStore
    from tests.model.sim.topics.checks import TopicChecks


class TopicLists:
    """Each operation runs at one instant, when its request arrives; `MetadataStore.request` loses and delays it."""

    def __init__(self, store: "MetadataStore", checks: "TopicChecks") -> None:
        self._store = store
        self._checks = checks
        self._lists: dict[str, tuple[LedgerList, int]] = {}
        self._made: dict[tuple[str, int], LedgerMetadata] = {}
        """The ledgers that were created, by the request that they were created for (rule 42)."""
        store.compare_and_sets.append(self.cas)

    def create(self, topic: str) -> None:
        """A topic without ledgers."""
        self._lists[topic] = LedgerList(), 0
        self._checks.created(topic)

    def read(self, topic: str) -> tuple[LedgerList, int]:
        """The list and its version, after a sync."""
        return self._lists[topic]

    def cas(
        self, topic: str, owner_token: str, new: LedgerList, expected_version: int
    ) -> tuple[CasOutcome, int]:
        """Compare-and-set by the owner that has drawn `owner_token`."""
        old, version = self._lists[topic]
        if version != expected_version:
            self._store.world.tally.state("list conflict")
            return CasOutcome.CONFLICT, -1
        check_list_change(old, new)
        if self._store.world.tracing:
            self._store.world.note("zookeeper", f"{topic} is {describe_list(new)} at version {version + 1}")
        self._lists[topic] = new, version + 1
        self._checks.list_changed(topic, owner_token, old, new)
        return CasOutcome.DONE, version + 1

    def create_ledger(
        self, request: tuple[str, int], topic: str, make: Callable[[LedgerId], LedgerMetadata]
    ) -> LedgerMetadata:
        """Create a ledger for `topic`, once for each request."""
        if request not in self._made:
            metadata = self._made[request] = make(self._store.new_ledger_id())
            self._store.create(metadata)
            self._checks.made(topic, request, metadata.ledger_id)
        return self._made[request]


def describe_list(ledger_list: LedgerList) -> str:
    """A list on one line."""
    ledgers = " ".join(
        f"{each.ledger_id}{'' if each.is_open else f'(ends at {each.entries - 1})'}"
        for each in ledger_list.ledgers
    )
    return f"<{ledger_list.state.value} of {ledger_list.owner_token}: {ledgers or 'no ledgers'}>"
