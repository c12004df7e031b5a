"""Manifests: lists of closed ledgers that jobs wrote, which become visible to readers all at once.

A job writes its ledgers first, each tagged with the job's id in its custom metadata, closes them, and then names them in the
manifest by one compare-and-set. A job that fails names none. Its ledgers are collected later: the manifest first records the job
as abandoned, after which it refuses the job's own change, so that nothing is deleted that readers may see.

The answer to the compare-and-set may be lost, and another job may change the manifest before the job repeats its change. So the
manifest also records which jobs it has, and a repeated change changes nothing.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from daybook.core.errors import MetadataError
from daybook.core.format.stored_record import read_record
from daybook.core.ids import LedgerId, check_integer, check_ledger_id
from daybook.metadata.layout import Layout, decode_name
from daybook.metadata.store.store import (
    BadVersionError,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Versioned,
)

FORMAT_VERSION: Final = 1
JOBS_REMEMBERED_MAX: Final = 1000
"""How many committed jobs, abandoned jobs and streaming queries a manifest remembers; the oldest are forgotten."""


class NoSuchManifestError(MetadataError):
    """No job has committed to a manifest of this name."""


class JobAbandonedError(MetadataError):
    """The job took so long that its ledgers were collected."""


@dataclass(frozen=True, slots=True)
class WrittenLedger:
    """A closed ledger of a manifest."""

    ledger_id: LedgerId
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The ledgers in their order, the last batch of each streaming query that is in it, and the jobs that may not add any more.

    `committed`: the jobs that committed to it last, also those that wrote no ledgers. Earlier releases neither record nor read them; they
    keep the field as it is.
    """

    ledgers: tuple[WrittenLedger, ...] = ()
    batches: Mapping[str, int] = field(default_factory=dict)
    abandoned: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def with_job(
        self,
        job: str,
        ledgers: tuple[WrittenLedger, ...],
        *,
        overwrite: bool,
        query: str = "",
        batch: int = 0,
    ) -> "Manifest":
        """The next value; this one if it has the job already. Raises JobAbandonedError."""
        if self.has_job(job):
            return self
        if job in self.abandoned:
            msg = f"job {job} was given up while it ran, and its ledgers are deleted: run it again"
            raise JobAbandonedError(msg)
        batches = dict(self.batches)
        if query:
            batches.pop(query, None)
            batches = dict([*batches.items(), (query, batch)][-JOBS_REMEMBERED_MAX:])
        kept = () if overwrite else self.ledgers
        committed = (*self.committed, job)[-JOBS_REMEMBERED_MAX:]
        return replace(self, ledgers=(*kept, *ledgers), batches=batches, committed=committed)

    def has_job(self, job: str) -> bool:
        """Whether a change of this job is in it, whatever other jobs have replaced since."""
        return job in self.committed

    def has_batch(self, query: str, batch: int) -> bool:
        """Whether a batch of a streaming query is in it already."""
        return bool(query) and self.batches.get(query, -1) >= batch

    def to_json(self) -> bytes:
        """The stored form."""
        record = {
            **self.unknown_fields,
            "formatVersion": FORMAT_VERSION,
            "ledgers": [
                {"ledgerId": led.ledger_id, "entries": led.entries, "size": led.size_bytes}
                for led in self.ledgers
            ],
            "batches": dict(self.batches),
            "abandoned": list(self.abandoned),
            "committed": list(self.committed),
        }
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Manifest":
        """Read a stored manifest. Raises MetadataError."""

        def make(record: dict[str, Any]) -> "Manifest":
            ledgers = tuple(
                WrittenLedger(
                    check_ledger_id(found["ledgerId"]),
                    check_integer(found["entries"]),
                    check_integer(found["size"]),
                )
                for found in record.pop("ledgers")
            )
            batches = {str(name): check_integer(batch) for name, batch in record.pop("batches").items()}
            abandoned = tuple(map(str, record.pop("abandoned")))
            committed = tuple(map(str, record.pop("committed", ())))
            return cls(ledgers, batches, abandoned, committed, record)

        return read_record(data, "manifest", FORMAT_VERSION, make)


class ManifestManager:
    """The manifests of one cluster. Raises MetadataUnavailableError while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the manifests of `layout` in `store`."""
        self._store = store
        self._layout = layout

    async def read(self, name: str) -> Versioned[Manifest] | None:
        """A manifest; None: there is none of this name."""
        try:
            node = await self._store.get(self._layout.manifest(name))
        except NoNodeError:
            return None
        return Versioned(Manifest.from_json(node.value), node.version)

    async def names(self) -> list[str]:
        """The names of all manifests."""
        try:
            return sorted(map(decode_name, await self._store.children(self._layout.manifests)))
        except NoNodeError:
            return []

    async def add(
        self,
        name: str,
        job: str,
        ledgers: tuple[WrittenLedger, ...],
        *,
        overwrite: bool = False,
        query: str = "",
        batch: int = 0,
    ) -> tuple[LedgerId, ...]:
        """Name the ledgers of `job`, or with `overwrite` them alone; returns the ledgers that nobody names any more.

        A batch of a streaming query that is in the manifest already is not added again: then these are its new ledgers. If
        the manifest has the job already, because an answer was lost, these are what the job's change replaced, and those of
        its own ledgers that another job has replaced since. Raises JobAbandonedError, MetadataError, NodeTooLargeError.
        """
        before = Manifest()

        def change(manifest: Manifest) -> Manifest:
            nonlocal before
            if manifest.has_job(job):
                return manifest  # `before` stays what the attempt without an answer replaced
            before = manifest
            if manifest.has_batch(query, batch):
                return manifest
            return manifest.with_job(job, ledgers, overwrite=overwrite, query=query, batch=batch)

        after = await self._change(name, change)
        named = {written.ledger_id for written in after.ledgers}
        replaced = before.ledgers if overwrite else ()
        return tuple(w.ledger_id for w in (*replaced, *ledgers) if w.ledger_id not in named)

    async def abandon(self, name: str, job: str) -> Manifest:
        """Let the manifest refuse the ledgers of `job` from now on, and return it: what it names stays."""
        return await self._change(
            name,
            lambda manifest: (
                manifest
                if job in manifest.abandoned
                else replace(manifest, abandoned=(*manifest.abandoned, job)[-JOBS_REMEMBERED_MAX:])
            ),
        )

    async def _change(self, name: str, change: Callable[[Manifest], Manifest]) -> Manifest:
        """The manifest after one compare-and-set; nothing is written where `change` returns what it was given."""
        path = self._layout.manifest(name)
        while True:
            current = await self.read(name)
            before = Manifest() if current is None else current.value
            after = change(before)
            if after == before:
                return after
            with suppress(NodeExistsError, BadVersionError, NoNodeError):  # another job was faster
                if current is None:
                    await self._store.create(path, after.to_json(), parents=True)
                else:
                    await self._store.put(path, after.to_json(), current.version)
                return after
