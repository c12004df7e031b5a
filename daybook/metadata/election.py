"""Electing one of several processes, as the auditor is.

Each candidate creates an ephemeral sequence node and waits until the node just before its own is deleted, so that the end of a
leader wakes one candidate and not all. The leadership is a lease: it counts as lost from the instant at which the session
may have ended, so that two leaders never act at once (rule 34, rule 46).
"""

import math
from contextlib import suppress

from daybook.core.errors import MetadataUnavailableError
from daybook.metadata.lease import Lease, create_lease, holder_of
from daybook.metadata.store.store import MetadataStore, SessionExpiredError, Watch

_SEQUENCE_DIGITS = 10


class Election:
    """An election below the directory `path`; `holder` is the name of this candidate, for people."""

    def __init__(self, store: MetadataStore, path: str, holder: str) -> None:
        """Store the arguments; `campaign` does the work."""
        self._store = store
        self._path = path
        self._holder = holder

    async def campaign(self) -> Lease:
        """Wait until this candidate leads. Release the lease to step down. Cancelling withdraws."""
        while True:
            session = self._store.session
            try:
                lease = await create_lease(
                    self._store, f"{self._path}/candidate-", self._holder, session.session_id, sequence=True
                )
            except SessionExpiredError:
                if not self._store.session.connected:
                    await self._store.session_changed(self._store.session)
                continue
            try:
                if await self._wait_for_turn(lease.path) and lease.is_certain:
                    return lease
            except BaseException:
                with suppress(MetadataUnavailableError):  # the node goes with the session then
                    await lease.release()
                raise
            await lease.release(timeout_s=math.inf)  # otherwise the next candidate would wait for this one

    async def _wait_for_turn(self, node: str) -> bool:
        """Return True once no candidate is before `node`, False when `node` itself is gone."""
        watch = self._store.watch()
        own = node.rpartition("/")[2]
        try:
            while True:
                candidates = await self._candidates(watch)
                if own not in candidates:
                    return False
                place = candidates.index(own)
                if place == 0:
                    return True
                before = self._store.watch()
                try:
                    if await before.get(f"{self._path}/{candidates[place - 1]}") is not None:
                        await before.changed()
                finally:
                    before.close()
        finally:
            watch.close()

    async def leader(self, watch: Watch) -> str | None:
        """The name of the present leader, read through `watch`, or None while there is none. Waits while the store is unavailable."""
        for name in await self._candidates(watch):
            node = await watch.get(f"{self._path}/{name}")
            if node is not None:
                return holder_of(node.value)
        return None

    async def _candidates(self, watch: Watch) -> list[str]:
        """The candidates' nodes, in the order in which they lead."""
        listed = await watch.children(self._path)
        return sorted(listed.value if listed else (), key=_sequence_of)


def _sequence_of(name: str) -> str:
    return name[-_SEQUENCE_DIGITS:]
