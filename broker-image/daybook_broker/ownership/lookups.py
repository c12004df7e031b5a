"""Lookups, each held while the answer is in doubt, up to a bound.

All who ask for one bundle share one search, which reads the bundle's node, decides (daybook/core/topics/ownership/lookup.py), and
where nobody knows yet waits for the node, the brokers or the session to change. An owner, a leader or a chosen broker is asked for a
sign of life before a client is sent to it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import assert_never

from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId
from daybook.core.topics.ownership.lookup import (
    Ask,
    AtOwner,
    BundleOwner,
    Choose,
    Decision,
    Hold,
    LookupFacts,
    Take,
    decide,
)
from daybook.core.topics.ownership.lookup import Mine as MineDecision
from daybook.metadata.bundles import BundleDirectory
from daybook.metadata.store.store import MetadataStore, Versioned, Watch
from daybook.runtime.shielded import shielded
from daybook_broker.ownership.api import (
    LOOKUPS_HELD_MAX,
    Answers,
    Elsewhere,
    LookupResult,
    Mine,
    NotReady,
)
from daybook_broker.ownership.held import HeldBundles
from daybook_broker.ownership.leading import Leader
from daybook_broker.ownership.members import Members
from daybook_broker.ownership.session import OwnSession


@dataclass(slots=True)
class _Search:
    """The search for the owner of one bundle."""

    task: asyncio.Task[LookupResult] | None = None
    waiting: int = 0
    why: str = "ZooKeeper does not answer"
    """What it waits for."""
    silent: set[BrokerId] = field(default_factory=set)
    """The brokers that did not answer."""


class Lookups:
    """The lookups of one broker."""

    def __init__(
        self,
        store: MetadataStore,
        bundles: BundleDirectory,
        session: OwnSession,
        members: Members,
        held: HeldBundles,
        leader: Leader,
        broker: BrokerId,
        answers: Answers,
        *,
        recheck_s: float,
    ) -> None:
        """Nothing is looked up yet."""
        self._store = store
        self._bundles = bundles
        self._session = session
        self._members = members
        self._held = held
        self._leader = leader
        self._broker = broker
        self._answers = answers
        self._recheck_s = recheck_s
        self._searches: dict[tuple[Bundle, bool], _Search] = {}
        self._closed = False
        self.held = 0
        """How many lookups wait now."""

    async def find(self, bundle: Bundle, *, authoritative: bool, hold_s: float) -> LookupResult:
        """Who owns a bundle. Raises MetadataError for a node that cannot be read."""
        if self._held.owns(bundle):
            return Mine()
        if self._closed:
            return NotReady("this broker stops: ask another one")
        if self.held >= LOOKUPS_HELD_MAX:
            return NotReady(f"{self.held} lookups wait for their owners already: try again later")
        search = self._searches.setdefault((bundle, authoritative), _Search())
        if search.task is None:
            search.task = asyncio.create_task(self._search(search, bundle, authoritative))
        search.waiting += 1
        self.held += 1
        try:
            async with asyncio.timeout(hold_s):
                return await shielded(search.task)
        except TimeoutError:
            return NotReady(
                f"the owner of {bundle} was not found within {hold_s:g} s: {search.why}; try again"
            )
        except asyncio.CancelledError:
            if self._closed and search.task.cancelled():
                return NotReady("this broker stops: ask another one")
            raise
        finally:
            self.held -= 1
            search.waiting -= 1
            if search.task.done() or not search.waiting:
                search.task.cancel()
                if self._searches.get((bundle, authoritative)) is search:
                    del self._searches[bundle, authoritative]

    def close(self) -> None:
        """End all lookups that wait."""
        self._closed = True
        for search in self._searches.values():
            if search.task is not None:
                search.task.cancel()

    async def _search(self, search: _Search, bundle: Bundle, authoritative: bool) -> LookupResult:
        watch = self._store.watch()
        try:
            while True:
                search.silent.clear()
                node = await self._bundles.owner(bundle, watch)
                result = await self._attempt(search, bundle, authoritative, node)
                if result is not None:
                    return result
                await self._change(watch)
        finally:
            watch.close()

    async def _attempt(
        self, search: _Search, bundle: Bundle, authoritative: bool, node: Versioned[BundleOwner] | None
    ) -> LookupResult | None:
        """The answer as things are; None: it is to be held."""
        while True:
            decision = self._decide(search, bundle, authoritative, node)
            match decision:
                case MineDecision():
                    return Mine()
                case Take():
                    await self._held.take(bundle, over=None if node is None else node.version)
                    if self._held.owns(bundle):
                        return Mine()
                    search.why = "another broker takes it"
                    return None
                case AtOwner(broker):
                    if await self._is_there(search, broker):
                        return Elsewhere(self._members.view.brokers[broker], is_owner=True)
                case Ask(broker, chosen):
                    if await self._is_there(search, broker):
                        return Elsewhere(self._members.view.brokers[broker], authoritative=chosen)
                case Hold(why):
                    search.why = why
                    return None
                case Choose():
                    raise AssertionError("the choice was made")
                case _:
                    assert_never(decision)

    def _decide(
        self, search: _Search, bundle: Bundle, authoritative: bool, node: Versioned[BundleOwner] | None
    ) -> Decision:
        view = self._members.view
        answering = view.brokers.keys() - search.silent
        facts = LookupFacts(
            self._broker,
            is_certain=self._session.is_certain,
            holding=self._held.holding(bundle),
            owner=None if node is None else node.value,
            leader=view.leader,
            answering=answering,
            authoritative=authoritative,
        )
        decision = decide(facts)
        if not isinstance(decision, Choose):
            return decision
        chosen = self._leader.choose(bundle, answering)
        if chosen is None:
            return Hold("no broker is registered that answers")
        return Take() if chosen == self._broker else Ask(chosen, authoritative=True)

    async def _is_there(self, search: _Search, broker: BrokerId) -> bool:
        """Whether a broker is registered and answers."""
        info = self._members.view.brokers.get(broker)
        if info is not None and await self._answers(info) and broker in self._members.view.brokers:
            return True
        search.silent.add(broker)
        return False

    async def _change(self, watch: Watch) -> None:
        """Return when another answer is possible, or when it is time to ask again who did not answer."""
        waits = [
            asyncio.ensure_future(wait)
            for wait in (
                watch.changed(),
                self._members.changed(),
                self._store.session_changed(self._store.session),
            )
        ]
        try:
            await asyncio.wait(waits, timeout=self._recheck_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
