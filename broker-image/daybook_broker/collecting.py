"""Deletes ledgers that crashes left behind and that nothing names: those of the topics whose bundles this broker has.

daybook/core/topics/unnamed.py decides, and says what proves that a ledger is never named. The owner alone can decide, so a topic with a
candidate is loaded if it is not served; most topics have none, and stay as they are. A listing that is cut short hides candidates and
nothing else: the proof needs the topic's list and its cursors, read whole after a `sync` (rule 28, rule 46). A ledger is read again
before it is deleted, at that version (rule 56); its custom metadata never changes. What fails is logged, and tried again in the next cycle.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from daybook.client.client import Client
from daybook.client.left_behind import delete_unnamed, named_by
from daybook.core.errors import DaybookError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId
from daybook.core.topics.unnamed import TopicLedger
from daybook.metadata.hold import check_not_held
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook_broker.ownership.api import LookupResult, Mine
from daybook_broker.topics.registry import TopicRegistry

log = get_logger(__name__)

READS_AT_ONCE: Final = 200
"""Ledgers whose metadata one request reads (rule 37)."""


class Owners(Protocol):
    """Who owns which topics."""

    def owns(self, topic: TopicName) -> bool:
        """Whether this broker does."""

    async def owners(self, tenant: str, namespace: str) -> Mapping[Bundle, BrokerId]:
        """The owners of a namespace's bundles, of those that have one."""

    async def lookup(self, topic: TopicName) -> LookupResult:
        """Who owns a topic; somebody does from then on."""


class Collection:
    """The cycles of one broker."""

    def __init__(self, registry: TopicRegistry, client: Client, topics: TopicManager) -> None:
        self._registry = registry
        self._client = client
        self._topics = topics
        self._settings = registry.services.settings

    async def run(self, owners: Owners) -> None:
        """Collect until the broker ends."""
        while True:
            await asyncio.sleep(self._settings.collect_interval_ms / 1000)
            try:
                await self.collect(owners)
            except DaybookError as error:
                log.warning("ledgers that nothing names are collected later", why=str(error))
            except Exception as error:
                log.error("a collection of ledgers failed after an error of the broker", exc_info=error)

    async def collect(self, owners: Owners) -> list[LedgerId]:
        """One cycle over all ledgers; what it deleted.

        Raises MetadataUnavailableError, MetadataError; CollectionHeldError after a restore (rule 68): what names a ledger may be younger.
        """
        await check_not_held(self._client.store, self._client.layout)
        deleted: list[LedgerId] = []
        bundles: dict[tuple[str, str], Mapping[Bundle, BrokerId]] = {}
        for name, ledgers in sorted((await self._candidates()).items()):
            namespace = (name.tenant, name.namespace)
            if namespace not in bundles:
                bundles[namespace] = await owners.owners(*namespace)
            if not owners.owns(name) and Bundle.of(name) in bundles[namespace]:
                continue  # its owner does this
            try:
                deleted += await self._collect_of(name, ledgers, owners)
            except DaybookError as error:
                log.warning("a topic's ledgers are collected later", topic=str(name), why=str(error))
        return deleted

    async def _candidates(self) -> dict[TopicName, list[TopicLedger]]:
        """The ledgers that were made for topics and are old enough, without those that lists in memory name."""
        named = {ledger_id for topic in self._registry.served() for ledger_id in topic.ledger_list.named_ids}
        found: defaultdict[TopicName, list[TopicLedger]] = defaultdict(list)
        async for page in self._client.ledgers.pages():
            unknown = [ledger_id for ledger_id in page if ledger_id not in named]
            for at in range(0, len(unknown), READS_AT_ONCE):
                for each in await self._client.ledgers.read_each(unknown[at : at + READS_AT_ONCE]):
                    if isinstance(each, DaybookError):
                        continue  # what cannot be read now stays
                    ledger = self._old_enough(each.value)
                    if ledger is not None:
                        found[ledger.topic].append(ledger)
        return found

    def _old_enough(self, metadata: LedgerMetadata) -> TopicLedger | None:
        ledger = TopicLedger.of(metadata)
        is_old = ledger is not None and ledger.is_older(self._settings.collect_grace_ms, unix_ms())
        return ledger if is_old else None

    async def _collect_of(
        self, name: TopicName, ledgers: Sequence[TopicLedger], owners: Owners
    ) -> list[LedgerId]:
        names = await named_by(self._topics, name)
        ledgers = [each for each in ledgers if not names.names(each.ledger_id)]
        if not ledgers or not (owners.owns(name) or isinstance(await owners.lookup(name), Mine)):
            return []
        token = ""
        if names.ledger_list is not None:
            token = (await self._registry.load(name, create=False)).owner_token
            names = await named_by(self._topics, name)
        return [
            each.ledger_id for each in ledgers if names.never_names(each, token) and await self._delete(each)
        ]

    async def _delete(self, judged: TopicLedger) -> bool:
        """Delete a ledger unless somebody does something with it just now."""
        try:
            if not await delete_unnamed(self._client, judged.ledger_id):
                return False
        except DaybookError as error:
            log.warning("a ledger that nothing names stays", ledger_id=judged.ledger_id, why=str(error))
            return False
        log.info(
            "a ledger that nothing names was deleted", topic=str(judged.topic), ledger_id=judged.ledger_id
        )
        self._registry.services.metrics.collected.inc()
        return True
