"""Whether anything may be deleted for the reason that the metadata does not name it: not after a restore, until a person says so.

A restored ZooKeeper lacks every ledger that began after its export, and to a bookie such a ledger looks deleted (rule 68). So
an import creates a node before any other: the hold. Bookies collect nothing while it holds, and neither do brokers and
sweeps. Its end is another value of the node, not its deletion, and each value has a token: whoever found the same value
before a listing and after it knows that no hold began and ended meanwhile.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from daybook.core.errors import MetadataError
from daybook.core.format.stored_record import read_record
from daybook.core.ids import LedgerId
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import Create, MetadataStore, NoNodeError, Operation, Put

FORMAT_VERSION = 1


class CollectionHeldError(MetadataError):
    """The metadata was restored, and no person has confirmed yet that what it does not name may be deleted."""


@dataclass(frozen=True, slots=True)
class CollectionHold:
    """The value of the node. `at_ms` and `exported_at_ms` are wall-clock times, for people.

    `next_id` is the first id that the restored cluster gives out; None before that is known, and after an import by a release that
    did not note it.
    """

    is_held: bool
    at_ms: int
    exported_at_ms: int
    token: str
    next_id: LedgerId | None = None

    @property
    def reason(self) -> str:
        """Why nothing is collected, and what to do; empty if collection is not held."""
        if not self.is_held:
            return ""
        exported, restored = (
            datetime.fromtimestamp(ms / 1000, UTC) for ms in (self.exported_at_ms, self.at_ms)
        )
        return (
            f"the metadata was restored at {restored:%Y-%m-%d %H:%M} UTC from an export of {exported:%Y-%m-%d %H:%M} UTC: nothing "
            "is collected until a person confirms it: see `daybook metadata orphans`, then `daybook metadata confirm`"
        )

    def to_json(self) -> bytes:
        """The stored form."""
        record: dict[str, Any] = {
            "formatVersion": FORMAT_VERSION,
            "held": self.is_held,
            "atMs": self.at_ms,
            "exportedAtMs": self.exported_at_ms,
            "token": self.token,
        }
        if self.next_id is not None:
            record["nextLedger"] = self.next_id
        return json.dumps(record).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "CollectionHold":
        """The inverse. Raises MetadataError for anything else, so that nothing is collected."""

        def make(record: dict[str, Any]) -> CollectionHold:
            return cls(
                is_held=bool(record["held"]),
                at_ms=int(record["atMs"]),
                exported_at_ms=int(record["exportedAtMs"]),
                token=str(record["token"]),
                next_id=int(record["nextLedger"]) if "nextLedger" in record else None,
            )

        return read_record(data, "hold of the collection", FORMAT_VERSION, make)


async def read_hold(store: MetadataStore, layout: Layout) -> CollectionHold | None:
    """The hold after a `sync`, or the last one that ended; None if there was none. Raises MetadataError."""
    await store.sync(layout.collection_hold)
    try:
        return CollectionHold.from_json((await store.get(layout.collection_hold)).value)
    except NoNodeError:
        return None


async def begin_ids(
    store: MetadataStore, layout: Layout, next_id: LedgerId, *, also: Sequence[Operation] = ()
) -> None:
    """Create the counter of ledger ids, and note in the hold where it begins, in one transaction with `also`: ledgers begin again from here on.

    Raises NodeExistsError if there is a counter, NoNodeError if there is no hold, MetadataError.
    """
    node = await store.get(layout.collection_hold)
    noted = replace(CollectionHold.from_json(node.value), next_id=next_id)
    counter = json.dumps({"next": next_id, "token": uuid.uuid4().hex}).encode()
    await store.multi(
        [Put(layout.collection_hold, noted.to_json(), node.version), Create(layout.idgen, counter), *also]
    )


async def check_not_held(store: MetadataStore, layout: Layout) -> None:
    """Raise CollectionHeldError while collection is held."""
    hold = await read_hold(store, layout)
    if hold is not None and hold.is_held:
        raise CollectionHeldError(hold.reason)


async def begin_hold(store: MetadataStore, layout: Layout, *, now_ms: int, exported_at_ms: int) -> None:
    """Hold collection from now on, also in a cluster that does not exist yet."""
    data = CollectionHold(
        is_held=True, at_ms=now_ms, exported_at_ms=exported_at_ms, token=uuid.uuid4().hex
    ).to_json()
    if await store.exists(layout.collection_hold) is None:
        await store.create(layout.collection_hold, data, parents=True)
    else:
        await store.put(layout.collection_hold, data, None)


async def end_hold(store: MetadataStore, layout: Layout, hold: CollectionHold) -> None:
    """End `hold`, which a person has seen. Raises MetadataError if there is another one by now, BadVersionError."""
    node = await store.get(layout.collection_hold)
    if CollectionHold.from_json(node.value) != hold:
        msg = "the metadata was restored once more meanwhile: list what it does not name again, and confirm then"
        raise MetadataError(msg)
    ended = replace(hold, is_held=False, token=uuid.uuid4().hex)
    await store.put(layout.collection_hold, ended.to_json(), node.version)
